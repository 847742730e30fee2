"""Deeper than allowed, on the ways that lead through another process: a command, a hook, the program itself."""

import json
import os
import sys

import pytest

from tests.flows.sandbox_world import need_status
from tests.needs import explain_lack

AGENT = "---\nname: reader\ndescription: d\nreadonly: true\ntools: read, bash\n---\nGo.\n"
WRITER = "---\nname: writer\ndescription: d\ntools: read, bash\n---\nGo.\n"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def use(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


@pytest.fixture
def crew(place):
    folder = place.agent_dir / "agents"
    folder.mkdir()
    (folder / "reader.md").write_text(AGENT)
    (folder / "writer.md").write_text(WRITER)
    return place


def start(agent, prompt):
    return use("Agent", subagent_type=agent, prompt=prompt, description="d")


def read_result(place, name):
    for path in place.agent_dir.rglob("session.jsonl"):
        for line in path.read_text().splitlines():
            message = json.loads(line).get("message", {})
            if message.get("role") == "toolResult" and message.get("toolName") == name:
                return message["content"][0]["text"]
    raise AssertionError("nobody called it")


@pytest.mark.attack("E6")
def test_commands_know_their_depth(crew):
    command = "printenv PI_SUBAGENT_CHILD PI_SUBAGENT_DEPTH PI_SUBAGENT_MAX_DEPTH"
    replies = [to("^go", **start("writer", "leaf")), to("^leaf", **use("bash", command=command)), to("^", text="done")]
    done = crew.run("-p", "go", replies=replies)
    assert (done.status, read_result(crew, "bash").split()) == (0, ["1", "1", "4"])


@pytest.mark.attack("E6")
def test_program_inside_command_is_as_deep(crew):
    marks = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "4", "PI_SUBAGENT_MAX_DEPTH": "4"}
    done = crew.run("--tools", "read,Agent", "-p", "go", replies=[start("writer", "x"), {"text": "ok"}], env=marks)
    assert (done.status in (0, 2), list(crew.agent_dir.rglob("session.jsonl"))) == (True, [])


@pytest.mark.attack("E6")
@pytest.mark.parametrize(("depth", "runs"), [("0", 2), ("2", 2), ("3", 1)])
def test_levels_outside_count_for_children(crew, depth, runs):
    (crew.agent_dir / "agents" / "nester.md").write_text(WRITER.replace("writer", "nester").replace("bash", "Agent"))
    marks = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": depth, "PI_SUBAGENT_MAX_DEPTH": "4"}
    replies = [to("^go", **start("nester", "mid")), to("^mid", **start("writer", "leaf")), to("^", text="done")]
    done = crew.run("--tools", "read,Agent", "-p", "go", replies=replies, env=marks)
    assert (done.status, len(list(crew.agent_dir.rglob("session.jsonl")))) == (0, runs)


@pytest.mark.attack("E6", "B23")
def test_program_inside_readonly_command_leaves_nothing(crew):
    need_status("landlock" if explain_lack("bwrap") else "bwrap")
    inner = crew.work / "inner.json"
    inner.write_text(json.dumps({"replies": [use("write", path="pwn", content="x"), {"text": "inner done"}]}))
    package = os.path.dirname(os.path.dirname(sys.modules["retinue"].__file__))
    command = f"PYTHONPATH={package} {sys.executable} -m retinue --model scripted/{inner} -p inner; echo status $?"
    replies = [to("^go", **start("reader", "leaf")), to("^leaf", **use("bash", command=command)), to("^", text="done")]
    done = crew.run("-p", "go", replies=replies, timeout_s=60)
    sessions = [
        path
        for path in crew.agent_dir.rglob("*.jsonl")
        if "inner" in path.read_text() and "leaf" not in path.read_text()
    ]
    assert (done.status, (crew.work / "pwn").exists(), sessions) == (0, False, [])
    assert "status" in read_result(crew, "bash")


@pytest.mark.attack("E6")
def test_hooks_count_as_level(crew):
    seen = crew.root / "seen"
    hook = crew.root / "hook.sh"
    hook.write_text(f"#!/bin/sh\ncat >/dev/null\nprintenv PI_SUBAGENT_DEPTH > {seen}\n")
    hook.chmod(0o700)
    folder = crew.home / ".codingcode"
    folder.mkdir()
    entry = f"name: look\n    point: agent.turn.end\n    type: observer\n    command: {hook}"
    (folder / "hooks.yaml").write_text(f"hooks:\n  - {entry}\n")
    done = crew.run("-p", "go", replies=[{"text": "ok"}], env={"PI_SUBAGENT_DEPTH": "2"})
    assert (done.status, seen.read_text().strip()) == (0, "3")

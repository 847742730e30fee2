"""Runs on workers whose calls and results are changed at the face that sent them."""

import asyncio
import json
import shlex

import pytest

from retinue.core.events import Asked
from tests.cluster.judged_world import DONE, hook_file, make_hook, read_notes, was_said

pytestmark = pytest.mark.timeout(120)


def read_calls(world):
    """The results of calls in the session that came home, and what was really called."""
    [path] = [each for each in world.agent_dir.glob("sessions/**/*.jsonl") if each.name != "main.jsonl"
              and '"toolResult"' in each.read_text()]  # fmt: skip
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    results = [each["message"] for each in entries if each.get("message", {}).get("role") == "toolResult"]
    changed = [each["data"]["arguments"] for each in entries if each.get("customType") == "retinue.call_changed"]
    return [(each["content"][0]["text"].strip(), each.get("details")) for each in results], changed


@pytest.mark.parametrize("approvals", ["never", pytest.param("ask", marks=pytest.mark.slow)])
async def test_hook_changes_remote_call(world, plain, home, tmp_path, approvals):
    world.settings["approvals"] = approvals
    notes, command = tmp_path / "notes.jsonl", {"command": "echo changed"}
    answer = json.dumps({"decision": "continue", "modifiedInput": command})
    hook_file(home, [
        make_hook(tmp_path, "fixer", "tool.approval.pre", answer, notes=notes),
        make_hook(tmp_path, "before", "tool.execute.before", notes=tmp_path / "begun.jsonl", kind="observer"),
    ])  # fmt: skip
    world.play(world.act(1), DONE)
    world.start_worker(**plain())
    asked = []
    async with world.open_face() as face:

        def answer_it(event):
            if isinstance(event, Asked):
                asked.append((event.question.title, event.question.text))
                asyncio.get_running_loop().call_soon(face.questions.answer, event.question.id, "allow")

        face.listen(answer_it)
        with face.questions.attend():
            await (await face.spawn("general-purpose", "Work.")).wait()
    assert (world.effects, was_said(world, "changed")) == ([], True)
    results, changed = read_calls(world)
    assert results == [("changed", {"modifiedInput": {"by": ["fixer"], "args": command}})] and changed == [command]
    assert asked == ([] if approvals == "never" else [("Allow bash? (changed by fixer)", "echo changed")])
    assert [each["args"] for each in read_notes(tmp_path / "begun.jsonl")] == [command]
    assert len(read_notes(notes)) == 1


@pytest.mark.attack("F8")
@pytest.mark.slow
async def test_changed_path_is_judged_there(world, plain, home, tmp_path):
    rule = {"action": "deny", "tool": "read", "pattern": f"{world.project}/README.md"}
    world.settings["approvalRules"] = [rule]
    answer = json.dumps({"decision": "allow", "modifiedInput": {"path": "other"}})
    hook = make_hook(tmp_path, "fixer", "tool.approval.pre", answer, notes=tmp_path / "notes.jsonl")
    script = tmp_path / "fixer.sh"
    script.write_text(f'#!/bin/sh\nread -r line\ncase "$line" in *\'"read"\'*) echo {shlex.quote(answer)};; esac\n')
    hook_file(home, [hook])
    link = world.act(1, after="ln -s README.md other")
    world.play(link, {"calls": [{"name": "read", "arguments": {"path": "harmless"}}]}, DONE)
    world.start_worker(**plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    assert (len(world.effects), was_said(world, '[Denied] Tool "read"')) == (1, True)


@pytest.mark.attack("F8")
async def test_worker_judges_changed_call(world, plain, home, tmp_path):
    answer = json.dumps({"modifiedInput": {"command": "echo forbidden"}})
    hook_file(home, [make_hook(tmp_path, "fixer", "tool.approval.pre", answer, notes=tmp_path / "notes.jsonl")])
    world.play(world.act(1), DONE)
    theirs = plain()
    rules = [{"action": "deny", "tool": "bash", "pattern": "*forbidden*", "reason": "not here"}]
    settings = {"sandbox": world.sandbox, "approvalRules": rules}
    with open(f"{theirs['PI_CODING_AGENT_DIR']}/subagents.json", "w") as file:
        json.dump(settings, file)
    world.start_worker(**theirs)
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    assert (world.effects, was_said(world, "was denied: not here")) == ([], True)


@pytest.mark.slow
async def test_hook_changes_remote_result(world, plain, home, tmp_path):
    answer = json.dumps({"modifiedOutput": "nothing to see"})
    hook_file(home, [make_hook(tmp_path, "scrub", "tool.execute.after", answer, notes=tmp_path / "notes.jsonl")])
    world.play(world.act(1), DONE)
    world.start_worker(**plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    results, _ = read_calls(world)
    assert results == [("nothing to see", {"modifiedOutput": {"by": ["scrub"]}})]
    assert (len(world.effects), was_said(world, "nothing to see")) == (1, True)


AMENDING = """
from retinue.core.tool import Amendment

class Prefix:
    async def before(self, call, tool):
        return Amendment({"command": "echo +; " + call.arguments["command"]})

def register(registrar):
    registrar.hook(Prefix())
"""


@pytest.mark.slow
async def test_extension_changes_remote_call(world, plain):
    world.play(world.act(1), DONE)
    world.start_worker(**plain())
    extensions = world.agent_dir / "extensions"
    extensions.mkdir()
    (extensions / "prefix.py").write_text(AMENDING)
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    [(text, details)], _ = read_calls(world)
    assert (text[0], len(world.effects), details["modifiedInput"]["by"]) == ("+", 1, ["prefix"])

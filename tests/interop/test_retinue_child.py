"""retinue as the child of a real pi: pi's own example extension `subagent`, pointed at our command."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import MockServer
from tests.interop.programs import Program

pytestmark = [pytest.mark.interop, pytest.mark.timeout(150)]

SCOUT = (
    "---\nname: scout\ndescription: Looks\ntools: read, grep, find, ls\nmodel: mock/mock-1\n---\n\nYou are the scout.\n"
)
# Without a script of its own on the command line, the extension starts whatever `pi` is on PATH.
LOADER = "process.argv.splice(1, 0, ''); await import({cli!r});"


def find_package(pi: Program) -> Path:
    program = Path(pi.command[0]).resolve()
    return next(folder for folder in program.parents if (folder / "package.json").exists())


def run_pi(pi: Program, root: Path, agent_dir: Path, prompt: str) -> list[dict[str, Any]]:
    """pi with its example extension in a home where `pi` on PATH is retinue; gives back its event stream."""
    package, work, bin_dir = find_package(pi), root / "work", root / "bin"
    work.mkdir()
    bin_dir.mkdir()
    (work / "a.txt").write_text("the needle\n")
    shim = bin_dir / "pi"
    shim.write_text(f'#!/bin/sh\necho "$@" >> {root}/calls\nexec {sys.executable} -P -m retinue "$@"\n')
    shim.chmod(0o755)
    shutil.copytree(package / "examples/extensions/subagent", agent_dir / "extensions/subagent")
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "scout.md").write_text(SCOUT)
    cli = Path(pi.command[0]).resolve().as_uri()
    flags = ["--mode", "json", "-p", "--no-session", "--model", "mock/mock-1", prompt]
    environment = {
        "PATH": os.pathsep.join((str(bin_dir), pi.path, os.environ["PATH"])),
        "HOME": str(agent_dir.parents[1]),
        "PI_CODING_AGENT_DIR": str(agent_dir),
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "RETINUE_NO_LOCAL": "1",
    }
    node = str(Path(pi.path, "node"))
    done = subprocess.run(
        [node, "--input-type=module", "-e", LOADER.format(cli=cli), "--", *flags],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_result(records: list[dict[str, Any]]) -> dict[str, Any]:
    (end,) = (record for record in records if record["type"] == "tool_execution_end")
    return end


def test_extension_of_pi_starts_retinue(pi, tmp_path, agent_dir):
    def to(words: str, **reply: object) -> dict[str, object]:
        return {"match": {"last_user": words}, **reply}

    delegate = {"name": "subagent", "arguments": {"agent": "scout", "task": "Find the needle", "agentScope": "user"}}
    look = {"name": "grep", "arguments": {"pattern": "needle"}}
    replies = [
        to("Task: Find", calls=[look]),
        to("Task: Find", text="It is in a.txt:1."),
        to("delegate", calls=[delegate]),
        to("delegate", text="The scout found it."),
    ]
    with MockServer.in_thread(replies) as server:
        (agent_dir / "models.json").write_text(json.dumps(server.models_json()))
        records = run_pi(pi, tmp_path, agent_dir, "please delegate")
    end = find_result(records)
    (result,) = end["result"]["details"]["results"]
    assert (end["isError"], end["result"]["content"][0]["text"]) == (False, "It is in a.txt:1.")
    assert (result["exitCode"], result["stderr"], result["usage"]["turns"]) == (0, "", 2)
    assert [message["role"] for message in result["messages"]][-3:] == ["assistant", "toolResult", "assistant"]
    assert "--mode json -p --no-session --model mock/mock-1" in (tmp_path / "calls").read_text()

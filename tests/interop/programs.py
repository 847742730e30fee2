"""Runs pi or retinue on a scenario, in a home of its own, as a user's shell would."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.testing import MockServer
from tests.interop.chat_server import ChatServer, Scripted, say, serve_replies
from tests.interop.pi_scenarios import MAX_TOKENS, NEXT_PROMPT, SYSTEM_PROMPT, WIRE_SCRIPT, Scenario

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Program:
    """How a program is started."""

    name: str
    command: tuple[str, ...]
    path: str
    """Directories for PATH, before the system's own."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a program left behind."""

    streams: list[list[dict[str, Any]]]
    requests: list[dict[str, Any]]
    statuses: list[int]
    session: Path
    cwd: Path


def find_pi() -> Program | None:
    """The installed pi: RETINUE_PI names it, or RETINUE_PI_DIR the npm project that has it."""
    folder = os.environ.get("RETINUE_PI_DIR", "")
    default = str(Path(folder, "node_modules/.bin/pi")) if folder else ""
    found = Path(os.environ.get("RETINUE_PI") or default)
    if not found.is_file():
        return None
    # pi's first line asks for `node` on PATH; the npm package `node` puts a new enough one beside pi.
    return Program("pi", (str(found),), str(found.parent))


def find_retinue() -> Program:
    """This repository's own program."""
    return Program("retinue", (sys.executable, "-m", "retinue"), str(Path(sys.executable).parent))


def build_home(root: Path, scenario: Scenario) -> Path:
    """Write the settings and make the working directory; returns the latter."""
    agent, cwd = root / "agent", root / "project"
    agent.mkdir(parents=True, exist_ok=True)
    cwd.mkdir(exist_ok=True)
    (agent / "settings.json").write_text(json.dumps(scenario.settings))
    return cwd


def write_models(root: Path, scenario: Scenario, url: str) -> None:
    """Point the provider `mock` at a server."""
    model = {"id": "mock-1", "contextWindow": scenario.window, "maxTokens": MAX_TOKENS, "reasoning": scenario.reasoning}
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [model]}
    (root / "agent" / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))


def start(
    program: Program, root: Path, prompt: str, session: Sequence[str] = ("--session", "session.jsonl")
) -> subprocess.Popen[str]:
    """Begin one headless invocation in JSON mode."""
    flags = ["--mode", "json", "-p", *session, "--tools", "read,bash"]
    flags += ["--model", "mock/mock-1", "--system-prompt", SYSTEM_PROMPT, prompt]
    environment = {
        "PATH": f"{program.path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(root),
        "TMPDIR": str(root),
        "PI_CODING_AGENT_DIR": str(root / "agent"),
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
    }
    return subprocess.Popen(
        [*program.command, *flags],
        cwd=root / "project",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], *, interrupted: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Read the stream to its end; the records and the exit status."""
    assert process.stdout is not None
    with process:
        head = ""
        while interrupted and "started\\n" not in head.partition("tool_execution_update")[2]:
            head += (line := process.stdout.readline())
            if not line:
                break
        if interrupted:
            process.send_signal(signal.SIGTERM)
        try:
            rest, errors = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if errors:
        sys.stderr.write(errors)
    return [json.loads(line) for line in (head + rest).splitlines()], process.returncode


def play(program: Program, scenario: Scenario, root: Path) -> Played:
    """Hold the whole conversation."""
    cwd = build_home(root, scenario)
    streams, statuses = [], []
    with serve_replies(scenario.replies) as chat:
        write_models(root, scenario, chat.url)
        for prompt in scenario.prompts:
            records, status = finish(start(program, root, prompt), interrupted=scenario.interrupted)
            streams.append(records)
            statuses.append(status)
    return Played(streams, chat.requests, statuses, cwd / "session.jsonl", cwd)


def play_wire(program: Program, api: str, root: Path) -> Played:
    """Hold the conversation of the wire script over one API."""
    cwd = build_home(root, Scenario(api, ()))
    with MockServer.in_thread(WIRE_SCRIPT) as server:
        (root / "agent" / "models.json").write_text(json.dumps(server.models_json(api=api, reasoning=True)))
        records, status = finish(start(program, root, "go"))
    return Played([records], [], [status], cwd / "session.jsonl", cwd)


def go_on(program: Program, scenario: Scenario, root: Path, reply: Scripted | None = None) -> ChatServer:
    """Open the session that lies in `root` and ask one more question."""
    with serve_replies([reply or say("More.")]) as chat:
        write_models(root, scenario, chat.url)
        _, status = finish(start(program, root, NEXT_PROMPT))
    assert status == 0
    return chat

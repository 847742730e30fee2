"""pi's own RpcClient drives retinue, and gets from it what it gets from pi."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.chat_server import say, serve_replies
from tests.interop.programs import TIMEOUT_S, Program

STEPS = Path(__file__).with_name("rpc_steps.mjs")
MODELS = [
    {"id": id, "contextWindow": 100_000, "maxTokens": 1000, "reasoning": id == "deep"} for id in ("plain", "deep")
]
LONG = 60_000
"""Of the answer that is worth a compaction."""


class Driver:
    """Starts a program through the client; where the client says `node` it gets that program."""

    def __init__(self, program: Program, pi: Program, root: Path) -> None:
        self.root = root
        self._cli = Path(pi.command[0]).resolve()
        self._node = Path(pi.path, "node")
        self._client = next(folder for folder in self._cli.parents if folder.name == "dist") / "index.js"
        bin_dir = root / "bin"
        (root / "agent").mkdir(parents=True)
        (root / "project").mkdir()
        bin_dir.mkdir()
        own = shlex.join(program.command)
        script = f'#!/bin/sh\nshift\nexec {own} "$@"\n' if program.name == "retinue" else ""
        if script:
            (bin_dir / "node").write_text(script)
            (bin_dir / "node").chmod(0o755)
        self._path = f"{bin_dir}{os.pathsep}{pi.path}{os.pathsep}{os.environ['PATH']}"

    def run(self, *steps: list[Any], flags: tuple[str, ...] = (), replies: tuple[Any, ...] = ()) -> list[Any]:
        with serve_replies(list(replies) or [say("One."), say("Two."), say("Three.")]) as chat:
            provider = {"baseUrl": chat.url, "api": "openai-completions", "apiKey": "none", "models": MODELS}
            (self.root / "agent" / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))
            first = ["--model", "mock/plain", "--tools", "read,bash", "--system-prompt", "Be short.", *flags]
            done = subprocess.run(
                [self._node, STEPS, self._client, self._cli, json.dumps(steps), *first],
                cwd=self.root / "project",
                env={
                    "PATH": self._path,
                    "HOME": str(self.root),
                    "TMPDIR": str(self.root),
                    "PI_CODING_AGENT_DIR": str(self.root / "agent"),
                    "PI_OFFLINE": "1",
                    "PI_TELEMETRY": "0",
                },
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=True,
            )
        text = done.stdout.replace(chat.url, "URL").replace(str(self.root), "ROOT")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def both(pi, retinue, tmp_path):
    """What the client gets from pi and from retinue for the same steps."""

    def run(*steps: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        told = [Driver(program, pi, tmp_path / program.name).run(*steps, **options) for program in (pi, retinue)]
        return told[0], told[1]

    return run


def drop(value: Any, *names: str) -> Any:
    """The value without fields that differ by nature."""
    if isinstance(value, dict):
        return {name: drop(inner, *names) for name, inner in value.items() if name not in names}
    return [drop(inner, *names) for inner in value] if isinstance(value, list) else value


def test_models_and_levels_are_the_same(both):
    expected, told = both(
        ["getState"],
        ["setModel", "mock", "deep"],
        ["getAvailableThinkingLevels"],
        ["setThinkingLevel", "high"],
        ["cycleThinkingLevel"],
        ["cycleModel"],
        ["cycleThinkingLevel"],
        ["getState"],
        ["setSteeringMode", "all"],
        ["setFollowUpMode", "all"],
        ["setAutoCompaction", False],
        ["getState"],
        flags=("--no-session",),
    )
    assert drop(told, "sessionId") == drop(expected, "sessionId")


def test_conversation_is_the_same(both):
    expected, told = both(
        ["settle", "go"],
        ["getLastAssistantText"],
        ["getSessionStats"],
        ["settle", "again"],
        ["getForkMessages"],
        ["fork", "$entry"],
        ["getSessionStats"],
        ["getLastAssistantText"],
        ["setSessionName", "work"],
        ["newSession"],
        ["getMessages"],
        ["getSessionStats"],
    )
    ids = ("sessionId", "sessionFile", "entryId")
    assert drop(told, *ids) == drop(expected, *ids)


def test_messages_are_the_same(both):
    expected, told = both(["bash", "echo hi; exit 3"], ["settle", "go"], ["getMessages"], flags=("--no-session",))
    by_nature = ("timestamp", "toolsAdded", "reasoning", "responseId")
    assert drop(told, *by_nature) == drop(expected, *by_nature)


def test_empty_queue_and_idle_aborts_are_the_same(both):
    expected, told = both(
        ["steer", "left"], ["followUp", "right"], ["clearQueue"], ["abort"], ["abortRetry"], ["abortBash"]
    )
    assert told == expected


def test_mistakes_are_refused_the_same(both):
    expected, told = both(
        ["setModel", "no", "such"],
        ["setSessionName", " "],
        ["fork", "zz"],
        ["getEntries", "zz"],
        ["compact"],
        ["getMessages"],
    )
    errors = [(step["method"], step.get("error", "").partition(":")[0]) for step in told]
    assert errors == [(step["method"], step.get("error", "").partition(":")[0]) for step in expected]


def test_every_method_is_answered(pi, retinue, tmp_path):
    told = Driver(retinue, pi, tmp_path / "own").run(
        ["settle", "go"],
        ["compact", "be brief"],
        ["getState"],
        ["clone"],
        ["switchSession", "$file"],
        ["getTree"],
        ["getEntries"],
        ["getCommands"],
        ["getAvailableModels"],
        ["setAutoRetry", False],
        ["exportHtml"],
        replies=(say("word " * LONG), *[say("Short.")] * 6),
    )
    failed = {step["method"]: step["error"].partition(":")[0] for step in told if "error" in step}
    assert failed == {}
    assert told[-1] == {"method": "stop", "fast": True}

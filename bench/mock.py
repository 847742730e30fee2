"""The mock model server as a process of its own, and the conversations it plays."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST_TOKEN_MS, CHUNK_MS, CHUNK_CHARS = 50, 5, 20
TOOL_TURNS = 5
ANSWER = ("The session is written line by line, before anything is shown. " * 13)[:800]
"""200 tokens at four characters each."""

Script = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Mock:
    """A running server."""

    port: int
    log: Path

    @property
    def base_url(self) -> str:
        """For a client of the chat completions format."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def chat_url(self) -> str:
        """Where a bare client posts."""
        return f"{self.base_url}/chat/completions"

    def read_log(self) -> list[dict[str, Any]]:
        """All requests so far, when they are logged."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


def write_sample(folder: Path) -> Path:
    """The file that every tool turn reads: forty lines."""
    path = folder / "sample.txt"
    path.write_text("".join(f"line {number}: some text that stands for code\n" for number in range(1, 41)))
    return path


def script_tool_turns(sample: Path) -> Script:
    """Five turns that read a file, then the answer, at the pace of a quick model."""
    pace = {"delay_ms": FIRST_TOKEN_MS, "chunk_ms": CHUNK_MS, "chunk_chars": CHUNK_CHARS}
    turns = [
        {"calls": [{"name": "read", "arguments": {"path": str(sample)}, "id": f"call_{number}"}], **pace}
        for number in range(TOOL_TURNS)
    ]
    return [*turns, {"text": ANSWER, **pace}]


def compute_ideal_s(script: Script) -> float:
    """The time the server itself takes for one conversation: what no client can go below."""
    from retinue.models.script_file import parse_script
    from retinue.testing.faults import build_plan, to_spoken
    from retinue.testing.plan import Wait
    from retinue.testing.wire.chat import ChatWire

    wire, total_s = ChatWire(), 0.0
    for position, reply in enumerate(parse_script(script).replies):
        spoken = to_spoken(reply, position=position, model="bench")
        plan = build_plan(wire, reply, spoken, None, stream=True)
        total_s += sum(step.seconds for step in plan.steps if isinstance(step, Wait))
    return total_s


@contextlib.contextmanager
def serve(folder: Path, script: Script | dict[str, Any], *, log: bool = False) -> Iterator[Mock]:
    """Run the server while the block runs."""
    path, log_path = folder / "script.json", folder / "requests.jsonl"
    path.write_text(json.dumps(script), encoding="utf-8")
    log_path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "retinue.testing.server", "--script", str(path)]
    if log:
        command += ["--log", str(log_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Mock(json.loads(process.stdout.readline())["port"], log_path)
    finally:
        process.terminate()
        process.communicate(timeout=10)


def write_models_json(agent_dir: Path, mock: Mock) -> None:
    """The server as provider `mock` with the model `bench`."""
    agent_dir.mkdir(parents=True, exist_ok=True)
    entry = {"id": "bench", "contextWindow": 2_000_000, "maxTokens": 16_384}
    provider = {"baseUrl": mock.base_url, "api": "openai-completions", "apiKey": "bench", "models": [entry]}
    (agent_dir / "models.json").write_text(json.dumps({"providers": {"mock": provider}}), encoding="utf-8")

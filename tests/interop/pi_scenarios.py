"""The scripted conversations that pi and retinue both play: what the model says, what the user asks."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.interop.chat_server import Scripted, call, fail, say, think

SYSTEM_PROMPT = "Answer in one word."
NEXT_PROMPT = "And now?"
MAX_TOKENS = 4096
LONG = "word " * 200
COMPACT_EARLY = {"compaction": {"reserveTokens": 2000, "keepRecentTokens": 100}}

TOO_LONG = fail(400, "This model's maximum context length is 10000 tokens. Your messages resulted in 12000 tokens.")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One conversation; each prompt is an invocation of its own on the same session file."""

    name: str
    replies: tuple[Scripted, ...]
    prompts: tuple[str, ...] = ("go",)
    reasoning: bool = False
    window: int = 128_000
    settings: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    """Ended by SIGTERM once a tool says `started`."""


def bash(call_id: str, command: str) -> tuple[str, str, str]:
    """A call of bash."""
    return call_id, "bash", json.dumps({"command": command})


def read(call_id: str, path: str) -> tuple[str, str, str]:
    """A call of read."""
    return call_id, "read", json.dumps({"path": path})


STREAMS = (
    Scenario("text", (say("Hello", " world"),)),
    Scenario("thinking", (think(["Let me", " see."], "Hi", "."),), reasoning=True),
    Scenario("tool", (call(bash("call_1", "echo hi"), text="Running."), say("Done."))),
    Scenario("parallel", (call(bash("call_1", "sleep 0.6; echo one"), bash("call_2", "echo two")), say("Done."))),
    Scenario("failing", (call(bash("call_1", "echo bad; exit 3")), call(read("call_2", "missing.txt")), say("Done."))),
    Scenario("unknown", (call(("call_1", "nope", '{"x": 1}')), say("Done."))),
    Scenario("invalid", (call(("call_1", "bash", '{"cmd": "x"}')), say("Done."))),
    Scenario("retry", (fail(500, "boom"), say("Done.")), settings={"retry": {"baseDelayMs": 20}}),
    Scenario(
        "exhausted",
        (fail(500, "boom"), fail(500, "boom"), fail(500, "boom")),
        settings={"retry": {"baseDelayMs": 20, "maxRetries": 2}},
    ),
    Scenario("refused", (fail(400, "no such thing"),)),
    Scenario("length", (say("Half an ans", finish="length", usage=(100, MAX_TOKENS)),)),
    Scenario("second", (say("One."), say("Two.")), prompts=("first", "second")),
    Scenario("cut_call", (call(bash("call_1", "echo hi"), finish="length"), say("Done."))),
    Scenario(
        "mixed",
        (
            think(["Look first."], "Looking."),
            call(bash("call_1", "sleep 0.6; echo one"), bash("call_2", "echo two"), text="Both."),
            say("Done."),
        ),
        prompts=("think", "work"),
        reasoning=True,
    ),
    Scenario(
        "compacted",
        (say("A.", usage=(3000, 20)), say("B.", usage=(9000, 20)), say("The summary.", usage=(3000, 30))),
        prompts=("first " + LONG, "second " + LONG),
        window=10_000,
        settings=COMPACT_EARLY,
    ),
    Scenario(
        "unsummarised",
        (say("A.", usage=(3000, 20)), say("B.", usage=(9000, 20)), fail(400, "no such thing")),
        prompts=("first " + LONG, "second " + LONG),
        window=10_000,
        settings=COMPACT_EARLY,
    ),
    Scenario(
        "overflow",
        (
            say("A."),
            say("B."),
            TOO_LONG,
            say("The summary."),
            say("C."),
        ),
        prompts=("first " + LONG, "second " + LONG, "third"),
        settings=COMPACT_EARLY,
    ),
)

RESUMED = ("text", "tool", "parallel", "failing", "retry", "second", "mixed", "compacted", "overflow")
SESSIONS = (
    *(one for one in STREAMS if one.name in RESUMED),
    Scenario("interrupted", (call(bash("call_1", "echo started; sleep 30")),), interrupted=True),
)

# For the mock server of retinue.testing, which speaks every wire format.
WIRE_SCRIPT = [
    {
        "chunk_chars": 9,
        "chunk_ms": 5,
        "blocks": [
            {"thinking": "Let me see.", "signature": "c2ln"},
            {"text": "Running both."},
            {"name": "bash", "arguments": {"command": "sleep 0.6; echo one"}, "id": "call_1"},
            {"name": "bash", "arguments": {"command": "echo two"}, "id": "call_2"},
        ],
    },
    {"text": "Done.", "chunk_chars": 3},
]

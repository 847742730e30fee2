"""A field that may be missing may be null: the sessions of every kind, each optional field null in turn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.core.transcript import list_orphans
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

DATA = Path(__file__).parent.parent / "data"
SAMPLES = [*sorted((DATA / "sessions").glob("*.jsonl")), *sorted((DATA / "pi").glob("*.session.jsonl"))]
OPTIONAL = {
    "text": ["textSignature"],
    "thinking": ["thinkingSignature", "redacted"],
    "toolCall": ["thoughtSignature", "namespace"],
    "system": ["sections", "toolsAdded", "toolsRemoved"],
    "assistant": [
        *("responseModel", "responseId", "providerThinkingLevel", "thinkingLevel", "diagnostics", "deferred"),
        *("errorMessage", "rawStopReason", "endTurn"),
    ],
    "toolResult": ["details", "usage"],
    "bashExecution": ["fullOutputPath", "excludeFromContext"],
    "custom": ["details"],
    "usage": ["cacheWrite1h", "reasoning", "cost"],
    "cost": ["cacheWrite", "total"],
    "session": ["version", "parentSession"],
    "compaction": ["details", "usage", "fromHook", "systemMessage"],
    "branch_summary": ["details", "usage", "fromHook"],
    "custom_message": ["details"],
    "session_info": ["name"],
    "label": ["label"],
}


def list_objects(value: Any, kind: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects of a session's line that have a kind of their own, the innermost too."""
    if isinstance(value, list):
        for item in value:
            yield from list_objects(item)
    elif isinstance(value, dict):
        yield value.get("role") or value.get("type") or kind, value
        for name, inner in value.items():
            if name not in ("arguments", "toolsAdded"):
                yield from list_objects(inner, name)


def read_context(folder: Path, lines: list[Any]) -> tuple[Any, ...]:
    path = folder / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "fixed", read_only=True)
    context = session.context()
    session.close()
    messages = json.loads(msgspec.json.encode(context.messages))
    shown = [{name: value for name, value in each.items() if name != "details"} for each in messages]
    lost = [*context.lost, *(each.tool_call_id for each in list_orphans(context.messages))]
    return shown, context.model, context.thinking, lost


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_null_means_missing(tmp_path: Path, sample: Path) -> None:
    lines = [json.loads(line) for line in sample.read_text().split("\n") if line]
    objects = [pair for line in lines for pair in list_objects(line)]
    tried = 0
    for kind, item in objects:
        for name in OPTIONAL.get(kind, ()):
            had = name in item
            value = item.pop(name, None)
            without = read_context(tmp_path, lines)
            item[name] = None
            assert read_context(tmp_path, lines) == without, (kind, name)
            item.pop(name)
            if had:
                item[name] = value
            tried += 1
    assert tried


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_nothing_is_lost_unsaid(tmp_path: Path, sample: Path) -> None:
    """Any part of a message whose value is wrong: the conversation is as long as before, or a warning tells of it."""
    lines = [json.loads(line) for line in sample.read_text().split("\n") if line]
    before = read_context(tmp_path, lines)
    blocks = [pair for line in lines for pair in list_objects(line.get("message")) if line["type"] == "message"]
    for kind, item in blocks:
        for name in [name for name in item if kind not in ("usage", "cost") and name != "timestamp"]:
            value, item[name] = item[name], 7
            after = read_context(tmp_path, lines)
            item[name] = value
            assert count_blocks(after[0]) == count_blocks(before[0]) or after[-1], (kind, name)


def count_blocks(messages: list[Any]) -> list[int]:
    return [len(message.get("content") or "") for message in messages]

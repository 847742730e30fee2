"""Session files made by hand after pi's documentation: every kind of entry, branches, old versions, damage."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STAMP = "2023-11-14T22:13:20.000Z"
NOW_MS = 1_700_000_000_000
USAGE = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}


def header(version: int | None = 3) -> dict[str, Any]:
    """The first line; version 1 had no number."""
    line = {"type": "session", "id": "00000000-0000-7000-8000-00000000000a", "timestamp": STAMP, "cwd": "/CWD"}
    return line if version is None else line | {"version": version}


def user(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"type": "message", "message": {"role": "user", "content": text, "timestamp": NOW_MS}}


def assistant(text: str, *calls: str, stop: str = "stop") -> dict[str, Any]:
    """A reply of the model, with calls of bash by id."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "toolCall", "id": one, "name": "bash", "arguments": {"command": one}} for one in calls]
    message: dict[str, Any] = {"role": "assistant", "content": content, "api": "openai-completions", "provider": "mock"}
    message |= {"model": "mock-1", "usage": USAGE | {"cost": COST}, "stopReason": "toolUse" if calls else stop}
    return {"type": "message", "message": message | {"timestamp": NOW_MS}}


def result(call_id: str, text: str) -> dict[str, Any]:
    """What a call of bash gave."""
    message = {"role": "toolResult", "toolCallId": call_id, "toolName": "bash", "isError": False, "timestamp": NOW_MS}
    return {"type": "message", "message": message | {"content": [{"type": "text", "text": text}]}}


def chain(entries: Iterable[dict[str, Any]], version: int | None = 3) -> list[dict[str, Any]]:
    """Give entries ids and parents, each the child of the one before; a `parent` of its own makes a branch."""
    lines, parent = [header(version)], None
    for number, entry in enumerate(entries, 1):
        entry_id = f"{number:08x}"
        parent = entry.pop("parent", parent)
        lines.append({"id": entry_id, "parentId": parent, "timestamp": STAMP} | entry)
        parent = entry_id
    return lines


def bash_run(command: str, **more: Any) -> dict[str, Any]:
    """A command that the user ran."""
    message = {"role": "bashExecution", "command": command, "output": f"{command} out", "exitCode": 0}
    message |= {"cancelled": False, "truncated": False, "timestamp": NOW_MS}
    return {"type": "message", "message": message | more}


def compaction(summary: str, first_kept: str) -> dict[str, Any]:
    """A compaction entry."""
    return {"type": "compaction", "summary": summary, "firstKeptEntryId": first_kept, "tokensBefore": 100}


def edit(target: str, replacement: Any) -> dict[str, Any]:
    """A change of what the model sees of an entry."""
    return {"type": "context_edit", "targetId": target, "replacement": replacement}


KINDS = [
    user("one"),
    {"type": "session_info", "name": "A name"},
    bash_run("ls"),
    bash_run("secret", excludeFromContext=True),
    bash_run("false", exitCode=1),
    {"type": "custom", "customType": "x", "data": {"text": "not for the model"}},
    {"type": "custom_message", "customType": "x", "content": "for the model", "display": False},
    {"type": "custom_message", "customType": "x", "content": [{"type": "text", "text": "in blocks"}], "display": True},
    assistant("Two."),
    {"type": "label", "targetId": "00000001", "label": "mark"},
    {"type": "usage", "kind": "x", "provider": "mock", "model": "mock-1", "usage": USAGE | {"cost": COST}},
    {"type": "from_the_future", "text": "unknown"},
    user("three"),
    assistant("Four."),
]
EDITED = [
    user("one"),
    assistant("wrong"),
    edit("00000002", {"content": [{"type": "text", "text": "right"}]}),
    user("gone"),
    edit("00000004", None),
    user("back"),
    edit("00000006", None),
    edit("00000006", {"content": "back again"}),
    assistant("", "call_1"),
    result("call_1", "long output"),
    edit("0000000a", {"content": "short"}),
    assistant("Done."),
]
BRANCHED = [
    user("root"),
    assistant("Root."),
    user("left"),
    assistant("Left."),
    {"type": "branch_summary", "fromId": "00000004", "summary": "Went left.", "parent": "00000002"},
    user("right"),
    assistant("Right."),
]
TWICE = [
    user("one"),
    assistant("One."),
    user("two"),
    assistant("Two."),
    compaction("first summary", "00000003"),
    user("three"),
    assistant("Three."),
    compaction("second summary", "00000006"),
    user("four"),
    assistant("Four."),
]
ORPHANS = [
    user("one"),
    assistant("", "call_1", "call_2"),
    result("call_1", "one"),
    user("two"),
    assistant("Half", stop="aborted"),
    user("three"),
    assistant("", stop="error"),
    user("four"),
    assistant("Four."),
]


def to_text(lines: list[dict[str, Any]]) -> str:
    """The file."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def damage(text: str) -> str:
    """A bad line in the middle, an empty one, and a last one that was never finished."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:2], "{not json\n", "\n", *lines[2:], '{"type":"message","id":"0000'])


HANDMADE = {
    "kinds": to_text(chain(KINDS)),
    "edited": to_text(chain(EDITED)),
    "branched": to_text(chain(BRANCHED)),
    "twice": to_text(chain(TWICE)),
    "orphans": to_text(chain(ORPHANS)),
    "version2": to_text(
        chain(
            [
                user("one"),
                {"type": "message", "message": KINDS[6] | {"role": "hookMessage", "timestamp": NOW_MS}},
                assistant("One."),
            ],
            2,
        )
    ),
    "version1": to_text([header(None)] + [{"timestamp": STAMP} | one for one in (user("one"), assistant("One."))]),
    "damaged": damage(to_text(chain([user("one"), assistant("One.")]))),
}


def put_handmade(name: str, cwd: Path) -> Path:
    """Write one of them to where a program will look for it."""
    target = cwd / "session.jsonl"
    target.write_text(HANDMADE[name].replace("/CWD", json.dumps(str(cwd))[1:-1]))
    return target

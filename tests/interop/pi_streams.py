"""What must be equal between two programs that play the same conversation, and the short list of what need not.

Everything that a comparison leaves out is in this file.
"""

import json
import re
from typing import Any

# Differs from run to run, or from machine to machine.
VOLATILE = frozenset({"timestamp", "usage", "delayMs", "estimatedTokensAfter", "tokensBefore"})
ENTRY_IDS = frozenset({"id", "parentId", "targetId", "firstKeptEntryId"})
# Added by pi 1.5.0, which retinue follows; the newest pi that installs does not say them.
NEWER = frozenset({"aborted", "durationMs", "thinkingLevel"})
# Wording of our own.
WORDS = frozenset({"errorMessage", "finalError"})


def normalise(records: list[dict[str, Any]], cwd: str) -> list[dict[str, Any]]:
    """The records without what may differ."""
    plain = json.loads(json.dumps(records).replace(json.dumps(cwd)[1:-1], "/CWD"))
    return [to_comparable(record) for record in plain if not is_hollow(record)]


def is_hollow(record: dict[str, Any]) -> bool:
    """Whether a record adds nothing: pi also tells pieces without text, and where a part of its thoughts ends."""
    piece = record.get("assistantMessageEvent", {})
    return piece.get("delta") == "" or (piece.get("type"), piece.get("delta")) == ("thinking_delta", "\n\n")


def to_comparable(record: dict[str, Any]) -> dict[str, Any]:
    """One record without what may differ."""
    kind = record["type"]
    if kind in ("session", "entry_appended", "compaction_end"):
        record = _without(record, ENTRY_IDS)
    if kind == "agent_settled":
        record = {"type": kind}
    record = _walk(record)
    if kind == "message_start" and record["message"].get("stopReason") == "pending":
        # pi prints a live object here: what it holds depends on how much has arrived by then.
        record["message"] |= {"content": []}
        record["message"].pop("responseId", None)
    return record


def _walk(value: Any) -> Any:
    if isinstance(value, list):
        return [_walk(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("role") == "system":
        value = _without(value, frozenset({"sections"}))
        if "toolsAdded" in value:
            value["toolsAdded"] = [tool["name"] for tool in value["toolsAdded"]]
    if value.get("isError") is True:
        # What a tool says about its failure is ours to word.
        value = {key: _blank_texts(item) for key, item in value.items()}
    return {
        key: f"<{key}>" if key in WORDS else _walk(item)
        for key, item in value.items()
        if key not in VOLATILE and not (key in NEWER and value.get("type") != "compaction_end")
    }


def _blank_texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_blank_texts(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: "<text>" if key == "text" else _blank_texts(item) for key, item in value.items()}


def _without(value: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    kept = {key: item for key, item in value.items() if key not in names}
    return {key: _without(item, names) if isinstance(item, dict) else item for key, item in kept.items()}


def to_conversation(request: dict[str, Any], cwd: str) -> list[dict[str, Any]]:
    """What a chat completion request says, apart from how it is spelled; the system prompt is left out."""
    messages = json.loads(json.dumps(request["messages"]).replace(json.dumps(cwd)[1:-1], "/CWD"))
    return [_to_said(message) for message in messages if message["role"] not in ("system", "developer")]


def _to_said(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "<image>") for part in content)
    said: dict[str, Any] = {"role": message["role"], "text": _without_frame(text)}
    if thought := message.get("reasoning_content"):
        said["thinking"] = thought
    if calls := message.get("tool_calls"):
        said["calls"] = [
            [one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])] for one in calls
        ]
    if "tool_call_id" in message:
        said["answers"] = message["tool_call_id"]
    return said


def _without_frame(text: str) -> str:
    """The sentence around a summary, or around a command that the user ran, is each program's own."""
    if (told := re.search(r"<summary>\s*(.*?)\s*</summary>", text, re.DOTALL)) is not None:
        return f"<summary>{told[1]}</summary>"
    if (ran := re.search(r"`([^`\n]+)`\n```\n(.*?)\n```", text, re.DOTALL)) is not None:
        return f"<command>{ran[1]}</command><output>{ran[2]}</output>"
    return text


def to_sample(line: dict[str, Any], cwd: str, ids: dict[str, str]) -> dict[str, Any]:
    """A session entry for the repository: still valid, but with ids, times and paths that never change."""
    entry: dict[str, Any] = json.loads(json.dumps(line).replace(json.dumps(cwd)[1:-1], "/CWD"))
    for key in ENTRY_IDS & entry.keys():
        if isinstance(entry[key], str):
            entry[key] = ids.setdefault(entry[key], f"{len(ids):08x}")
    if entry["type"] == "session":
        entry["id"] = "00000000-0000-7000-8000-000000000000"
    _settle(entry, 1_700_000_000_000 + 1000 * len(ids))
    return entry


def _settle(value: Any, now_ms: int) -> None:
    if isinstance(value, list):
        for item in value:
            _settle(item, now_ms)
        return
    if not isinstance(value, dict):
        return
    if isinstance(value.get("timestamp"), int):
        value["timestamp"] = now_ms
    elif "timestamp" in value:
        value["timestamp"] = f"2023-11-14T22:{now_ms // 60_000 % 60:02d}:{now_ms // 1000 % 60:02d}.000Z"
    if "description" in value and "parameters" in value:
        # Tool descriptions are pi's own sentences: of no use here.
        value["description"] = value["name"]
        value["parameters"] = {"type": "object", "properties": {}}
    for item in value.values():
        _settle(item, now_ms)

"""The wire format of OpenAI's Responses API."""

from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from retinue.core.model import FailureKind
from retinue.models.script import ScriptContext, ScriptUsage
from retinue.testing.wire.base import (
    CREATED_S,
    Mark,
    Spoken,
    SpokenBlock,
    WireEvent,
    WireRequest,
    split_pieces,
    to_sse,
    to_text,
)
from retinue.testing.wire.chat import to_openai_error

_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
_CODES: dict[FailureKind, str] = {"rate": "rate_limit_exceeded", "request": "invalid_prompt"}
_SPOKEN_BY_MODEL = frozenset({"reasoning", "function_call", "custom_tool_call"})


class _Item(Struct):
    type: str = "message"
    role: str = ""
    content: Raw = Raw()


class _Body(Struct):
    input: str | list[_Item]
    model: str = ""
    stream: bool | None = False
    instructions: str | None = ""
    prompt_cache_key: str | None = ""
    previous_response_id: str | None = None


_BODY = Decoder(_Body)


class ResponsesWire:
    request_id = b"x-request-id"

    def parse_request(self, body: bytes, *, full: bool) -> WireRequest:
        asked = _BODY.decode(body)
        users, system, first = _read_items(asked, full=full)
        return WireRequest(
            model=asked.model,
            stream=bool(asked.stream),
            position=_count_before(asked.previous_response_id) + sum(count for _, count in users),
            exchange=ScriptContext(users, asked.instructions or system) if full else None,
            conversation=hash((first, asked.prompt_cache_key)),
        )

    def render_stream(self, spoken: Spoken) -> list[WireEvent]:
        events = _Events()
        begun = _response(spoken, "in_progress", [])
        events.add("response.created", {"response": begun}, "start")
        events.add("response.in_progress", {"response": begun})
        for index, block in enumerate(spoken.blocks):
            item = _item(spoken, index, block)
            if block.kind == "text":
                _add_text(events, index, item, split_pieces(block.text, spoken.chunk_chars))
            elif block.kind == "thinking":
                _add_thinking(events, index, item, split_pieces(block.text, spoken.chunk_chars))
            else:
                _add_call(events, index, item, split_pieces(block.text, spoken.chunk_chars))
        status = _status(spoken)
        events.add(f"response.{status}", {"response": _response(spoken, status, _items(spoken))}, "last")
        return events.events

    def render_plain(self, spoken: Spoken) -> bytes:
        return orjson.dumps(_response(spoken, _status(spoken), _items(spoken)))

    def render_error(self, kind: FailureKind, status: int, message: str) -> bytes:
        return orjson.dumps(to_openai_error(kind, message))

    def render_error_events(self, kind: FailureKind, status: int, message: str) -> list[bytes]:
        code = _CODES.get(kind, "server_error")
        response = {"id": "resp_mock", "object": "response", "created_at": CREATED_S, "status": "failed", "output": []}
        failed = {**response, "error": {"code": code, "message": message}}
        event = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
        return [
            to_sse(event, "error"),
            to_sse({"type": "response.failed", "sequence_number": 1, "response": failed}, "response.failed"),
        ]

    def render_text_piece(self, spoken: Spoken, piece: str) -> bytes:
        index = next((at for at, block in enumerate(spoken.blocks) if block.kind == "text"), 0)
        place = {"item_id": f"msg_mock_{spoken.position}_{index}", "output_index": index, "content_index": 0}
        delta = {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": [], "sequence_number": 0}
        return to_sse(delta, "response.output_text.delta")


class _Events:
    def __init__(self) -> None:
        self.events: list[WireEvent] = []

    def add(self, name: str, payload: dict[str, Any], mark: Mark = "other") -> None:
        event = {"type": name, **payload, "sequence_number": len(self.events)}
        self.events.append(WireEvent(to_sse(event, name), mark, name.endswith(".delta")))


def _read_items(asked: _Body, *, full: bool) -> tuple[list[tuple[str, int]], str, bytes]:
    """Return the user messages with the number of replies after each; consecutive items of the model form one reply."""
    if isinstance(asked.input, str):
        return [(asked.input, 0)], "", asked.input.encode()
    users: list[tuple[str, int]] = []
    system = ""
    first = b""
    in_reply = False
    for item in asked.input:
        is_spoken = item.type in _SPOKEN_BY_MODEL or item.role == "assistant"
        if is_spoken and not in_reply:
            text, count = users.pop() if users else ("", 0)
            users.append((text, count + 1))
        elif item.role == "user":
            first = first or bytes(item.content)
            users.append((to_text(orjson.loads(bytes(item.content) or b"null")) if full else "", 0))
        elif item.role in ("system", "developer") and full and not system:
            system = to_text(orjson.loads(bytes(item.content) or b"null"))
        in_reply = is_spoken
    return users, system, first


def _count_before(previous_response_id: str | None) -> int:
    _, _, position = (previous_response_id or "").rpartition("resp_mock_")
    return int(position) + 1 if position.isdigit() else 0


def _status(spoken: Spoken) -> str:
    return "incomplete" if spoken.stop in _INCOMPLETE or spoken.raw_stop else "completed"


def _response(spoken: Spoken, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    reason = spoken.raw_stop or _INCOMPLETE.get(spoken.stop)
    has_ended = status != "in_progress"
    return {
        "id": f"resp_mock_{spoken.position}",
        "object": "response",
        "created_at": CREATED_S,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "model": spoken.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(spoken.usage) if has_ended and spoken.usage is not None else None,
        "user": None,
        "metadata": {},
    }


def _usage(usage: ScriptUsage) -> dict[str, Any]:
    read = usage.input + usage.cache_read + usage.cache_write
    details = {"cached_tokens": usage.cache_read}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    return {
        "input_tokens": read,
        "input_tokens_details": details,
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + usage.output,
    }


def _items(spoken: Spoken) -> list[dict[str, Any]]:
    return [_item(spoken, index, block) for index, block in enumerate(spoken.blocks)]


def _item(spoken: Spoken, index: int, block: SpokenBlock) -> dict[str, Any]:
    place = f"mock_{spoken.position}_{index}"
    if block.kind == "text":
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": block.text}
        return {
            "id": f"msg_{place}",
            "type": "message",
            "status": "completed",
            "content": [part],
            "role": "assistant",
        }
    if block.kind == "thinking":
        summary = [{"type": "summary_text", "text": block.text}]
        return {"id": f"rs_{place}", "type": "reasoning", "summary": summary, "encrypted_content": block.signature}
    call = {"arguments": block.text, "call_id": block.id, "name": block.name}
    return {"id": f"fc_{place}", "type": "function_call", "status": "completed", **call}


def _without_empty(pieces: list[str]) -> Iterator[str]:
    return (piece for piece in pieces if piece)


def _add_text(events: _Events, index: int, item: dict[str, Any], pieces: list[str]) -> None:
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    part = item["content"][0]
    begun = {**item, "status": "in_progress", "content": []}
    events.add("response.output_item.added", {"output_index": index, "item": begun})
    events.add("response.content_part.added", {**place, "part": {**part, "text": ""}})
    for piece in _without_empty(pieces):
        events.add("response.output_text.delta", {**place, "delta": piece, "logprobs": []}, "text")
    events.add("response.output_text.done", {**place, "text": part["text"], "logprobs": []})
    events.add("response.content_part.done", {**place, "part": part})
    events.add("response.output_item.done", {"output_index": index, "item": item})


def _add_thinking(events: _Events, index: int, item: dict[str, Any], pieces: list[str]) -> None:
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    part = item["summary"][0]
    begun = {**item, "summary": [], "encrypted_content": ""}
    events.add("response.output_item.added", {"output_index": index, "item": begun})
    events.add("response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}})
    for piece in _without_empty(pieces):
        events.add("response.reasoning_summary_text.delta", {**place, "delta": piece})
    events.add("response.reasoning_summary_text.done", {**place, "text": part["text"]})
    events.add("response.reasoning_summary_part.done", {**place, "part": part})
    events.add("response.output_item.done", {"output_index": index, "item": item})


def _add_call(events: _Events, index: int, item: dict[str, Any], pieces: list[str]) -> None:
    place = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress", "arguments": ""}
    events.add("response.output_item.added", {"output_index": index, "item": begun})
    for piece in _without_empty(pieces):
        events.add("response.function_call_arguments.delta", {**place, "delta": piece}, "args")
    done = {**place, "name": item["name"], "arguments": item["arguments"]}
    events.add("response.function_call_arguments.done", done)
    events.add("response.output_item.done", {"output_index": index, "item": item}, "call_end")

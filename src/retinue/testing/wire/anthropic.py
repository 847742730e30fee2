"""The wire format of Anthropic's Messages API."""

from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from retinue.core.model import FailureKind
from retinue.models.script import ScriptContext, ScriptUsage
from retinue.testing.wire.base import Spoken, SpokenBlock, WireEvent, WireRequest, split_pieces, to_sse, to_text

_STOPS = {"stop": "end_turn", "length": "max_tokens", "toolUse": "tool_use", "refusal": "refusal", "error": "end_turn"}
_TYPES: dict[FailureKind, str] = {
    "rate": "rate_limit_error",
    "overloaded": "overloaded_error",
    "auth": "authentication_error",
    "missing": "not_found_error",
    "request": "invalid_request_error",
    "overflow": "invalid_request_error",
}


class _Message(Struct):
    role: str
    content: Raw = Raw()


class _Body(Struct):
    messages: list[_Message]
    model: str = ""
    stream: bool = False
    system: Raw = Raw()
    metadata: Raw = Raw()


_BODY = Decoder(_Body)


class AnthropicWire:
    request_id = b"request-id"

    def parse_request(self, body: bytes, *, full: bool) -> WireRequest:
        asked = _BODY.decode(body)
        messages = asked.messages
        first = bytes(messages[0].content) if messages else b""
        return WireRequest(
            model=asked.model,
            stream=asked.stream,
            position=sum(message.role == "assistant" for message in messages),
            exchange=_read_exchange(asked) if full else None,
            conversation=hash((first, bytes(asked.metadata))),
        )

    def render_stream(self, spoken: Spoken) -> list[WireEvent]:
        start = _message(spoken)
        start.update(content=[], stop_reason=None)
        if spoken.usage is not None:
            start["usage"] = {**_usage(spoken.usage), "output_tokens": 1}
        events = [
            WireEvent(to_sse({"type": "message_start", "message": start}, "message_start"), "start"),
            WireEvent(to_sse({"type": "ping"}, "ping")),
        ]
        for index, block in enumerate(spoken.blocks):
            events.extend(_block_events(index, block, spoken.chunk_chars))
        end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": _stop(spoken), "stop_sequence": None}}
        if spoken.usage is not None:
            end["usage"] = _usage(spoken.usage)
        events.append(WireEvent(to_sse(end, "message_delta"), "stop"))
        events.append(WireEvent(to_sse({"type": "message_stop"}, "message_stop"), "last"))
        return events

    def render_plain(self, spoken: Spoken) -> bytes:
        return orjson.dumps(_message(spoken))

    def render_error(self, kind: FailureKind, status: int, message: str) -> bytes:
        if kind == "overflow":
            message = "prompt is too long: 212345 tokens > 200000 maximum"
        return orjson.dumps({**_error(kind, message), "request_id": "req_mock"})

    def render_error_events(self, kind: FailureKind, status: int, message: str) -> list[bytes]:
        return [to_sse(_error(kind, message), "error")]

    def render_text_piece(self, spoken: Spoken, piece: str) -> bytes:
        index = next((at for at, block in enumerate(spoken.blocks) if block.kind == "text"), 0)
        return _delta(index, {"type": "text_delta", "text": piece})


def _read_exchange(asked: _Body) -> ScriptContext:
    users: list[tuple[str, int]] = []
    for message in asked.messages:
        if message.role == "assistant":
            text, count = users.pop() if users else ("", 0)
            users.append((text, count + 1))
            continue
        content = orjson.loads(bytes(message.content) or b"null")
        said = to_text(content)
        # Tool results have the user's role too; only the user's own text begins a new exchange.
        if said or isinstance(content, str):
            users.append((said, 0))
    return ScriptContext(users, to_text(orjson.loads(bytes(asked.system) or b"null")))


def _stop(spoken: Spoken) -> str:
    return spoken.raw_stop or _STOPS[spoken.stop]


def _usage(usage: ScriptUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def _message(spoken: Spoken) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for block in spoken.blocks:
        if block.kind == "text":
            content.append({"type": "text", "text": block.text})
        elif block.kind == "thinking":
            content.append({"type": "thinking", "thinking": block.text, "signature": block.signature})
        else:
            arguments = orjson.Fragment(block.text)
            content.append({"type": "tool_use", "id": block.id, "name": block.name, "input": arguments})
    message: dict[str, Any] = {
        "id": f"msg_mock_{spoken.position}",
        "type": "message",
        "role": "assistant",
        "model": spoken.model,
        "content": content,
        "stop_reason": _stop(spoken),
        "stop_sequence": None,
    }
    if spoken.usage is not None:
        message["usage"] = _usage(spoken.usage)
    return message


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return to_sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")


def _block_events(index: int, block: SpokenBlock, chunk_chars: int) -> list[WireEvent]:
    empty: dict[str, Any]
    pieces = [piece for piece in split_pieces(block.text, chunk_chars) if piece]
    if block.kind == "text":
        empty = {"type": "text", "text": ""}
        deltas = [WireEvent(_delta(index, {"type": "text_delta", "text": piece}), "text", True) for piece in pieces]
    elif block.kind == "thinking":
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            WireEvent(_delta(index, {"type": "thinking_delta", "thinking": piece}), is_piece=True) for piece in pieces
        ]
        deltas.append(WireEvent(_delta(index, {"type": "signature_delta", "signature": block.signature})))
    else:
        empty = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
        deltas = [WireEvent(_delta(index, {"type": "input_json_delta", "partial_json": ""}))]
        deltas += [
            WireEvent(_delta(index, {"type": "input_json_delta", "partial_json": piece}), "args", True)
            for piece in pieces
        ]
    start = to_sse({"type": "content_block_start", "index": index, "content_block": empty}, "content_block_start")
    stop = to_sse({"type": "content_block_stop", "index": index}, "content_block_stop")
    return [WireEvent(start), *deltas, WireEvent(stop, "call_end" if block.kind == "call" else "other")]


def _error(kind: FailureKind, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": _TYPES.get(kind, "api_error"), "message": message}}

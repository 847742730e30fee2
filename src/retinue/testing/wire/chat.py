"""The wire format of OpenAI's Chat Completions API, with `reasoning_content` as compatible servers send it."""

from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from retinue.core.model import FailureKind
from retinue.models.script import ScriptContext, ScriptUsage
from retinue.testing.wire.base import CREATED_S, Mark, Spoken, WireEvent, WireRequest, split_pieces, to_sse, to_text

_STOPS = {"stop": "stop", "length": "length", "toolUse": "tool_calls", "refusal": "content_filter", "error": "stop"}
_TYPES: dict[FailureKind, tuple[str, str | None]] = {
    "rate": ("rate_limit_error", "rate_limit_exceeded"),
    "auth": ("invalid_request_error", "invalid_api_key"),
    "missing": ("invalid_request_error", "model_not_found"),
    "request": ("invalid_request_error", None),
    "overflow": ("invalid_request_error", "context_length_exceeded"),
}
_DONE = b"data: [DONE]\n\n"


class _Message(Struct):
    role: str
    content: Raw = Raw()


class _Options(Struct):
    include_usage: bool = False


class _Body(Struct):
    messages: list[_Message]
    model: str = ""
    stream: bool | None = False
    stream_options: _Options | None = None
    prompt_cache_key: str | None = ""


_BODY = Decoder(_Body)


class ChatWire:
    request_id = b"x-request-id"

    def parse_request(self, body: bytes, *, full: bool) -> WireRequest:
        asked = _BODY.decode(body)
        first = next((bytes(message.content) for message in asked.messages if message.role == "user"), b"")
        return WireRequest(
            model=asked.model,
            stream=bool(asked.stream),
            position=sum(message.role == "assistant" for message in asked.messages),
            exchange=_read_exchange(asked) if full else None,
            conversation=hash((first, asked.prompt_cache_key)),
            include_usage=asked.stream_options is not None and asked.stream_options.include_usage,
        )

    def render_stream(self, spoken: Spoken) -> list[WireEvent]:
        events = [WireEvent(_chunk(spoken, {"role": "assistant", "content": "", "refusal": None}), "start")]
        calls = 0
        for block in spoken.blocks:
            pieces = [piece for piece in split_pieces(block.text, spoken.chunk_chars) if piece]
            if block.kind == "text":
                events.extend(WireEvent(_chunk(spoken, {"content": piece}), "text", True) for piece in pieces)
            elif block.kind == "thinking":
                thoughts = (_chunk(spoken, {"reasoning_content": piece}) for piece in pieces)
                events.extend(WireEvent(thought, is_piece=True) for thought in thoughts)
            else:
                start = {"index": calls, "id": block.id, "type": "function"}
                head = {**start, "function": {"name": block.name, "arguments": ""}}
                events.append(WireEvent(_chunk(spoken, {"tool_calls": [head]})))
                for at, piece in enumerate(pieces):
                    delta = {"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}
                    mark: Mark = "call_end" if at == len(pieces) - 1 else "args"
                    events.append(WireEvent(_chunk(spoken, delta), mark, True))
                calls += 1
        events.append(WireEvent(_chunk(spoken, {}, spoken.raw_stop or _STOPS[spoken.stop]), "stop"))
        if spoken.include_usage and spoken.usage is not None:
            final = {**_head(spoken, "chat.completion.chunk"), "choices": [], "usage": _usage(spoken.usage)}
            events.append(WireEvent(to_sse(final), "stop"))
        events.append(WireEvent(_DONE, "last"))
        return events

    def render_plain(self, spoken: Spoken) -> bytes:
        texts = [block.text for block in spoken.blocks if block.kind == "text"]
        thinking = [block.text for block in spoken.blocks if block.kind == "thinking"]
        calls = [
            {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.text}}
            for block in spoken.blocks
            if block.kind == "call"
        ]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None}
        if thinking:
            message["reasoning_content"] = "".join(thinking)
        if calls:
            message["tool_calls"] = calls
        finish = spoken.raw_stop or _STOPS[spoken.stop]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        reply = {**_head(spoken, "chat.completion"), "choices": [choice]}
        if spoken.usage is not None:
            reply["usage"] = _usage(spoken.usage)
        return orjson.dumps(reply)

    def render_error(self, kind: FailureKind, status: int, message: str) -> bytes:
        return orjson.dumps(to_openai_error(kind, message))

    def render_error_events(self, kind: FailureKind, status: int, message: str) -> list[bytes]:
        return [to_sse(to_openai_error(kind, message))]

    def render_text_piece(self, spoken: Spoken, piece: str) -> bytes:
        return _chunk(spoken, {"content": piece})


def to_openai_error(kind: FailureKind, message: str) -> dict[str, Any]:
    """Return an error body in the form of both OpenAI APIs."""
    if kind == "overflow":
        message = (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 132100 tokens."
        )
    type_, code = _TYPES.get(kind, ("server_error", None))
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def _read_exchange(asked: _Body) -> ScriptContext:
    users: list[tuple[str, int]] = []
    system = ""
    for message in asked.messages:
        if message.role == "assistant":
            text, count = users.pop() if users else ("", 0)
            users.append((text, count + 1))
        elif message.role == "user":
            users.append((to_text(orjson.loads(bytes(message.content) or b"null")), 0))
        elif message.role in ("system", "developer") and not system:
            system = to_text(orjson.loads(bytes(message.content) or b"null"))
    return ScriptContext(users, system)


def _head(spoken: Spoken, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-mock-{spoken.position}",
        "object": kind,
        "created": CREATED_S,
        "model": spoken.model,
        "system_fingerprint": "fp_mock",
    }


def _chunk(spoken: Spoken, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {**_head(spoken, "chat.completion.chunk"), "choices": [choice]}
    if spoken.include_usage:
        chunk["usage"] = None
    return to_sse(chunk)


def _usage(usage: ScriptUsage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    details = {"cached_tokens": usage.cache_read, "audio_tokens": 0}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }

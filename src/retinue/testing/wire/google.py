"""The wire format of Google's Generative Language API."""

from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from retinue.core.model import FailureKind
from retinue.models.script import ScriptContext, ScriptUsage
from retinue.testing.wire.base import Mark, Spoken, SpokenBlock, WireEvent, WireRequest, split_pieces, to_sse, to_text

_STOPS = {"stop": "STOP", "length": "MAX_TOKENS", "toolUse": "STOP", "refusal": "SAFETY", "error": "OTHER"}
_STATUSES: dict[FailureKind, str] = {
    "rate": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "auth": "UNAUTHENTICATED",
    "missing": "NOT_FOUND",
    "request": "INVALID_ARGUMENT",
    "overflow": "INVALID_ARGUMENT",
}


class _Content(Struct):
    parts: list[Raw] = []
    role: str = "user"


class _Body(Struct, rename="camel"):
    contents: list[_Content]
    system_instruction: _Content | None = None


_BODY = Decoder(_Body)


class GoogleWire:
    """`/v1beta/models/<id>:generateContent` and `:streamGenerateContent`; the path contains model and mode."""

    request_id = b"x-request-id"

    def parse_request(self, body: bytes, *, full: bool) -> WireRequest:
        asked = _BODY.decode(body)
        first = b"".join(bytes(part) for part in asked.contents[0].parts) if asked.contents else b""
        return WireRequest(
            model="",
            stream=False,
            position=sum(content.role == "model" for content in asked.contents),
            exchange=_read_exchange(asked) if full else None,
            conversation=hash(first),
        )

    def render_stream(self, spoken: Spoken) -> list[WireEvent]:
        chunks: list[tuple[dict[str, Any], Mark]] = []
        for block in spoken.blocks:
            if block.kind == "call":
                chunks.append((_part(block, block.text), "call_end"))
                continue
            pieces = split_pieces(block.text, spoken.chunk_chars)
            for at, piece in enumerate(pieces):
                is_end = at == len(pieces) - 1
                chunks.append((_part(block, piece, is_end=is_end), "text" if block.kind == "text" else "other"))
        events = [WireEvent(to_sse(_chunk(spoken, [part])), mark, True) for part, mark in chunks]
        final = _chunk(spoken, [], finish=_stop(spoken))
        return [*events, WireEvent(to_sse(final), "last")]

    def render_plain(self, spoken: Spoken) -> bytes:
        parts = [_part(block, block.text) for block in spoken.blocks]
        return orjson.dumps(_chunk(spoken, parts, finish=_stop(spoken)))

    def render_error(self, kind: FailureKind, status: int, message: str) -> bytes:
        return orjson.dumps(_error(kind, status, message))

    def render_error_events(self, kind: FailureKind, status: int, message: str) -> list[bytes]:
        return [to_sse(_error(kind, status, message))]

    def render_text_piece(self, spoken: Spoken, piece: str) -> bytes:
        return to_sse(_chunk(spoken, [{"text": piece}]))


def _read_exchange(asked: _Body) -> ScriptContext:
    users: list[tuple[str, int]] = []
    for content in asked.contents:
        if content.role == "model":
            text, count = users.pop() if users else ("", 0)
            users.append((text, count + 1))
            continue
        parts = [orjson.loads(bytes(part)) for part in content.parts]
        # Tool results have the user's role too; only the user's own text begins a new exchange.
        if any("functionResponse" not in part for part in parts):
            users.append((to_text(parts), 0))
    system = asked.system_instruction.parts if asked.system_instruction else []
    return ScriptContext(users, to_text([orjson.loads(bytes(part)) for part in system]))


def _stop(spoken: Spoken) -> str:
    return spoken.raw_stop or _STOPS[spoken.stop]


def _part(block: SpokenBlock, text: str, *, is_end: bool = True) -> dict[str, Any]:
    if block.kind == "text":
        return {"text": text}
    if block.kind == "thinking":
        part: dict[str, Any] = {"text": text, "thought": True}
        if is_end:
            part["thoughtSignature"] = block.signature
        return part
    call: dict[str, Any] = {"name": block.name, "args": orjson.Fragment(text)}
    if block.has_own_id:
        call["id"] = block.id
    return {"functionCall": call}


def _chunk(spoken: Spoken, parts: list[dict[str, Any]], *, finish: str | None = None) -> dict[str, Any]:
    # Like the API, omit `parts` if there are none.
    content = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    candidate: dict[str, Any] = {"content": content, "index": 0}
    chunk: dict[str, Any] = {"candidates": [candidate]}
    if finish is not None:
        candidate["finishReason"] = finish
    if spoken.usage is not None:
        chunk["usageMetadata"] = _usage(spoken.usage, has_ended=finish is not None)
    return {**chunk, "modelVersion": spoken.model, "responseId": f"mock-{spoken.position}"}


def _usage(usage: ScriptUsage, *, has_ended: bool) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    output = usage.output if has_ended else 1
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": output, "totalTokenCount": prompt + output}
    if usage.cache_read:
        counts["cachedContentTokenCount"] = usage.cache_read
    return counts


def _error(kind: FailureKind, status: int, message: str) -> dict[str, Any]:
    if kind == "overflow":
        message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(kind, "INTERNAL")}}

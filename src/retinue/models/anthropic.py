"""The wire format `anthropic-messages`."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from retinue.core.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserContent,
    join_text,
)
from retinue.core.model import Draft, Failure, ModelRequest
from retinue.core.pattern import late_pattern
from retinue.models.adapter import Adapter
from retinue.models.conversation import SKIP, WireMessage
from retinue.models.convert import is_own, is_replayable, list_blocks, to_call_id, to_json, user_content
from retinue.models.cost import count_tokens
from retinue.models.failures import fail
from retinue.models.reply_reader import ReplyReader, parse_arguments
from retinue.models.thinking_levels import budget_tokens, can_disable

_VERSION = "2023-06-01"
_INTERLEAVED = "interleaved-thinking-2025-05-14"
_CACHE = {"type": "ephemeral"}
_CACHE_FIELD = b',"cache_control":{"type":"ephemeral"}'
_CLAUDE = late_pattern(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_MOST_PAUSES = 10
# The block that a delta belongs to, and the field that holds the piece.
_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("call", "partial_json"),
    "signature_delta": ("thinking", "signature"),
    "citations_delta": ("text", "citation"),
}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}


class AnthropicModel(Adapter):
    default_base_url = "https://api.anthropic.com"

    def url(self) -> str:
        return f"{self.base_url.removesuffix('/v1')}/v1/messages"

    def headers(self, key: str | None, request: ModelRequest) -> dict[str, str]:
        headers = {"anthropic-version": _VERSION}
        if key and key.startswith("sk-ant-oat"):
            headers["authorization"] = f"Bearer {key}"
        elif key:
            headers["x-api-key"] = key
        if self._thinks(request) and not self._is_adaptive():
            headers["anthropic-beta"] = _INTERLEAVED
        compat = self.info.compat
        is_openrouter = "openrouter.ai" in self.base_url
        if request.session_id and request.cache and compat.get("sendSessionAffinityHeaders", is_openrouter):
            is_named = compat.get("sessionAffinityFormat", "openrouter" if is_openrouter else "") == "openrouter"
            headers["x-session-id" if is_named else "x-session-affinity"] = request.session_id
        return headers

    def open_reading(self, draft: Draft) -> ReplyReader:
        return _AnthropicReading(self.info, draft)

    def go_on(self, body: bytes, reading: ReplyReader) -> bytes:
        blocks = reading.resume() if isinstance(reading, _AnthropicReading) else []
        said = to_json({"role": "assistant", "content": blocks})
        return b"%b,%b]}" % (body.removesuffix(b"]}"), said) if blocks else b""

    def head(self, request: ModelRequest) -> dict[str, Any]:
        cache = {"cache_control": _CACHE} if request.cache else {}
        head: dict[str, Any] = {"model": self.info.id, "stream": True}
        if request.system:
            head["system"] = [{"type": "text", "text": request.system, **cache}]
        if request.tools:
            tools = [self._tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
            if self.info.compat.get("supportsCacheControlOnTools", True):
                tools[-1] |= cache
            head["tools"] = tools
        if self._thinks(request) and self._is_adaptive():
            level = self.level(request)
            head["thinking"] = {"type": "adaptive", "display": "summarized"}
            head["output_config"] = {"effort": self.info.thinking_level_map.get(level) or _EFFORTS[level]}
        elif self.info.reasoning and not self._thinks(request) and can_disable(self.info):
            head["thinking"] = {"type": "disabled"}
        return head

    def open_list(self, request: ModelRequest, limit: int) -> list[bytes]:
        parts = []
        if self._thinks(request) and not self._is_adaptive():
            level = self.level(request)
            if request.max_tokens:
                # An explicit limit applies to the answer: the thinking budget is added to it.
                limit = min(limit + budget_tokens(self.info, level, 1 << 30), max(limit, self.info.max_tokens))
            if (budget := budget_tokens(self.info, level, limit)) >= 1024:
                parts.append(b'"thinking":{"type":"enabled","budget_tokens":%d},' % budget)
        return [*parts, b'"max_tokens":%d,"messages":[' % limit]

    def to_piece(self, message: Message) -> WireMessage:
        if isinstance(message, AssistantMessage):
            blocks = self._assistant_blocks(message) if is_replayable(message) else []
            calls = tuple((call.id, call.name) for call in message.calls)
            wire = to_json({"role": "assistant", "content": blocks})
            return WireMessage("assistant", wire, calls=calls) if blocks else SKIP
        if isinstance(message, ToolResultMessage):
            result: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": to_call_id(message.tool_call_id),
                "content": self._result_content(message),
            }
            if message.is_error:
                result["is_error"] = True
            return WireMessage("result", to_json(result), call_id=message.tool_call_id)
        content = user_content(message)
        blocks = [_user_block(block) for block in list_blocks(content, self.info)] if content is not None else []
        return WireMessage("user", to_json({"role": "user", "content": blocks})) if blocks else SKIP

    def join_results(self, results: list[WireMessage]) -> bytes:
        return b'{"role":"user","content":[%b]}' % b",".join(result.wire for result in results)

    def mark_last(self, message: Message, piece: WireMessage) -> WireMessage:
        if piece.role == "result":
            return WireMessage("result", b"%b%b}" % (piece.wire[:-1], _CACHE_FIELD), call_id=piece.call_id)
        if piece.role == "user":
            return WireMessage("user", b"%b%b}]}" % (piece.wire[:-3], _CACHE_FIELD))
        return piece

    def _thinks(self, request: ModelRequest) -> bool:
        return self.info.reasoning and self.level(request) != "off"

    def _is_adaptive(self) -> bool:
        forced = self.info.compat.get("forceAdaptiveThinking")
        if forced is not None:
            return bool(forced)
        match = _CLAUDE.search(self.info.id)
        return match is not None and (int(match[1]), int(match[2] or 0)) >= (4, 6)

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
        schema = {"type": "object", **parameters}
        tool: dict[str, Any] = {"name": name, "description": description, "input_schema": schema}
        if self.info.compat.get("supportsEagerToolInputStreaming"):
            tool["eager_input_streaming"] = True
        return tool

    def _assistant_blocks(self, message: AssistantMessage) -> list[dict[str, Any]]:
        own = is_own(message, self.info)
        blocks: list[dict[str, Any]] = []
        for block in message.content:
            if isinstance(block, TextContent):
                if block.text.strip():
                    blocks.append({"type": "text", "text": block.text})
            elif isinstance(block, ToolCall):
                call_id = to_call_id(block.id)
                blocks.append({"type": "tool_use", "id": call_id, "name": block.name, "input": block.arguments})
            elif thought := self._thinking_block(block, own=own):
                blocks.append(thought)
        return blocks

    def _thinking_block(self, block: ThinkingContent, *, own: bool) -> dict[str, Any] | None:
        signature = block.thinking_signature or ""
        if own and block.redacted:
            return {"type": "redacted_thinking", "data": signature}
        if own and (signature or (block.thinking and self.info.compat.get("allowEmptySignature"))):
            return {"type": "thinking", "thinking": block.thinking, "signature": signature}
        # Thinking of another model, or without a signature: the API accepts it only as text.
        if block.thinking.strip() and not block.redacted:
            return {"type": "text", "text": block.thinking}
        return None

    def _result_content(self, message: ToolResultMessage) -> str | list[dict[str, Any]]:
        blocks = list_blocks(message.content, self.info)
        if any(isinstance(block, ImageContent) for block in blocks):
            return [_user_block(block) for block in blocks]
        return join_text(blocks)


def _user_block(block: UserContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


class _Block(Struct):
    kind: str
    index: int = -1
    call_id: str = ""
    name: str = ""
    signature: str = ""
    given: Any = {}
    input: str = ""
    raw: dict[str, Any] = {}


class _AnthropicReading(ReplyReader):
    """Reads the events message_start … message_stop, or one complete message."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: dict[Any, _Block] = {}
        self._said: list[dict[str, Any]] = []
        self._pauses = 0
        self._usage: dict[str, Any] = {}
        self._earlier: list[dict[str, Any]] = []
        self._explanation = ""

    def read_event(self, event: Any) -> bool:
        kind = event.get("type")
        if kind == "content_block_delta":
            self._read_delta(event.get("index"), event["delta"])
        elif kind == "content_block_start":
            self._begin(event.get("index"), event["content_block"])
        elif kind == "content_block_stop":
            if (block := self._open.pop(event.get("index"), None)) is not None:
                self._end(block)
        elif kind == "message_start":
            message = event.get("message") or {}
            self.set_response(message.get("id"), message.get("model"))
            self._read_usage(message.get("usage"))
        elif kind == "message_delta":
            self._read_stop(event.get("delta") or {})
            self._read_usage(event.get("usage"))
            self.is_complete = bool(self.raw_stop)
        elif kind == "message_stop":
            self.is_complete = self.is_done = True
        else:
            self.raise_error(event)
            return False
        return True

    def read_whole(self, data: Any) -> None:
        self.set_response(data.get("id"), data.get("model"))
        for index, block in enumerate(data["content"]):
            self._begin(index, block)
            if (opened := self._open.pop(index, None)) is not None:
                self._end(opened)
        self._read_stop(data)
        self._read_usage(data.get("usage"))

    def judge(self) -> tuple[StopReason, Failure | None]:
        match self.raw_stop:
            case "max_tokens" | "model_context_window_exceeded":
                return "length", None
            case "refusal" | "sensitive":
                return self.refuse(self._explanation or f"the reply ended with stop reason {self.raw_stop!r}")
            case "pause_turn" if self._pauses > _MOST_PAUSES:
                note = f"the provider paused the reply {self._pauses} times and did not finish it"
                return "error", fail(self.info, "protocol", note, advice="ask for less at once")
        return "stop", None

    def close_open(self) -> None:
        for block in self._open.values():
            self._end(block)
        self._open.clear()

    def resume(self) -> list[dict[str, Any]]:
        """The content so far, to be sent back, if the provider paused the reply and will continue it; else empty."""
        if self.raw_stop != "pause_turn" or self._call_ids:
            return []
        self.close_open()
        self._pauses += 1
        if self._pauses > _MOST_PAUSES or not self._said:
            return []
        self.raw_stop, self.is_complete, self.is_done = "", False, False
        self._earlier.append(self._usage)
        self._usage = {}
        return self._said

    def _begin(self, index: Any, content: dict[str, Any]) -> _Block:
        if (before := self._open.pop(index, None)) is not None:
            self._end(before)
        match content.get("type"):
            case "text":
                block = _Block("text", self.open_text())
                self.write(block.index, content.get("text") or "")
            case "thinking":
                block = _Block("thinking", self.open_thinking())
                self.write(block.index, content.get("thinking") or "")
                block.signature = content.get("signature") or ""
            case "redacted_thinking":
                block = _Block("redacted", self.open_thinking())
                block.signature = content.get("data") or ""
            case "tool_use":
                name = str(content.get("name") or "")
                at, call_id = self.open_call(str(content.get("id") or ""), name)
                block = _Block("call", at, call_id, name)
                block.given = content.get("input") or {}
            case _:
                block = _Block("other")  # a tool that the provider runs itself: needed only if it pauses
        block.raw = content
        self._open[index] = block
        return block

    def _read_delta(self, index: Any, delta: dict[str, Any]) -> None:
        kind, field = _PIECES.get(delta.get("type") or "", ("", ""))
        piece = delta.get(field) or ""
        block = self._open.get(index)
        if block is None and kind in ("text", "thinking"):
            block = self._begin(index, {"type": kind})
        if block is None or not piece:
            return
        if field == "citation":
            block.raw.setdefault("citations", []).append(piece)
        elif field == "signature":
            block.signature += piece
        elif block.kind == "other":
            block.input += piece
        else:
            self.write(block.index, piece)

    def _end(self, block: _Block) -> None:
        signature: str | UnsetType = block.signature or UNSET
        if block.kind == "text":
            self.draft.close_text(block.index)
        elif block.kind == "call":
            arguments = self.draft.written(block.index) or block.given
            self.close_call(block.index, block.call_id, block.name, arguments)
        elif block.kind != "other":
            self.draft.close_thinking(block.index, signature=signature, redacted=block.kind == "redacted")
        self._said.append(self._to_raw(block))

    def _to_raw(self, block: _Block) -> dict[str, Any]:
        if block.kind == "text":
            return {**block.raw, "text": self.draft.written(block.index)}
        if block.kind == "thinking":
            return {**block.raw, "thinking": self.draft.written(block.index), "signature": block.signature}
        return {**block.raw, "input": parse_arguments(block.input)[0]} if block.input else block.raw

    def _read_stop(self, delta: dict[str, Any]) -> None:
        if isinstance(reason := delta.get("stop_reason"), str):
            self.raw_stop = reason
        details = delta.get("stop_details")
        if isinstance(details, dict) and isinstance(details.get("explanation"), str):
            self._explanation = details["explanation"]

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        # Every report is a new total; an absent or null field keeps its previous value.
        self._usage |= {name: value for name, value in usage.items() if value is not None}
        details = self._usage.get("output_tokens_details")
        thought = details.get("thinking_tokens") if isinstance(details, dict) else None
        used = [*self._earlier, self._usage]
        fresh, output, cache_read, cache_write = (
            sum(count_tokens(report.get(name)) for report in used)
            for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        self.set_usage(
            fresh=fresh,
            output=output,
            cache_read=cache_read,
            cache_write=cache_write,
            thought=thought,
        )

"""The wire format `openai-completions`: OpenAI's chat completions, also used by many other servers."""

from typing import Any

import orjson
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
from retinue.core.model import Draft, Failure, ModelInfo, ModelRequest
from retinue.models.adapter import Adapter
from retinue.models.compat import detect_compat, thinking_fields
from retinue.models.conversation import SKIP, WireMessage
from retinue.models.convert import is_own, is_replayable, list_blocks, to_call_id, to_json, user_content
from retinue.models.cost import count_tokens
from retinue.models.failures import fail
from retinue.models.reply_reader import ReplyReader, parse_arguments

_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary", "reasoning.encrypted": "data"}


class ReasoningDetails:
    """The reasoning details of one reply; consecutive pieces of a text are joined to one detail."""

    def __init__(self) -> None:
        self._details: list[dict[str, Any]] = []

    def add(self, details: Any) -> None:
        for detail in details if isinstance(details, list) else ():
            if not _is_detail(detail):
                continue
            kind = detail["type"]
            last = self._details[-1] if self._details else {}
            if kind != "reasoning.encrypted" and last.get("type") == kind:
                last[_TEXTS[kind]] += detail[_TEXTS[kind]]
                for name, value in detail.items():
                    if last.get(name) is None:
                        last[name] = value
            else:
                self._details.append(dict(detail))

    def render(self) -> str:
        """The details as a signature; empty if there are none."""
        return orjson.dumps(self._details).decode() if self._details else ""


def parse_details(signature: str | UnsetType) -> list[dict[str, Any]]:
    """The details in a signature; empty if it is something else."""
    if not isinstance(signature, str) or not signature.startswith("["):
        return []
    try:
        details = orjson.loads(signature)
    except ValueError:
        return []
    return details if isinstance(details, list) and all(map(_is_detail, details)) else []


def _is_detail(detail: Any) -> bool:
    return isinstance(detail, dict) and isinstance(detail.get(_TEXTS.get(detail.get("type", ""), "")), str)


_CALL_ID_CHARS = 40
_CACHE_KEY_CHARS = 64
_CACHE = {"type": "ephemeral"}
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
_RARE_FIELDS = frozenset((*_REASONING_FIELDS, "reasoning_details", "refusal"))


class OpenAIChatModel(Adapter):
    default_base_url = "https://api.openai.com/v1"

    def __init__(self, info: ModelInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self.compat = detect_compat(info, self.base_url)
        if self.compat.get("requiresAssistantAfterToolResult"):
            self.bridge = to_json({"role": "assistant", "content": "I have seen the results."})

    def url(self) -> str:
        return f"{self.base_url}/chat/completions"

    def headers(self, key: str | None, request: ModelRequest) -> dict[str, str]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if request.session_id and request.cache and self.compat["sendSessionAffinityHeaders"]:
            if self.compat["sessionAffinityFormat"] == "openrouter":
                return headers | {"x-session-id": request.session_id}
            if self.compat["sessionAffinityFormat"] == "openai":
                headers["session_id"] = request.session_id
            headers |= {"x-client-request-id": request.session_id, "x-session-affinity": request.session_id}
        return headers

    def open_reading(self, draft: Draft) -> ReplyReader:
        return _ChatReading(self.info, draft)

    def head(self, request: ModelRequest) -> dict[str, Any]:
        compat = self.compat
        head: dict[str, Any] = {"model": self.info.id, "stream": True}
        if compat["supportsUsageInStreaming"]:
            head["stream_options"] = {"include_usage": True}
        if compat["supportsStore"]:
            head["store"] = False
        if self._names_session(request):
            head["prompt_cache_key"] = request.session_id[:_CACHE_KEY_CHARS]
        if request.tools:
            head["tools"] = [self._tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
            if request.cache and compat["cacheControlFormat"] == "anthropic":
                head["tools"][-1]["cache_control"] = _CACHE
            if compat.get("zaiToolStream"):
                head["tool_stream"] = True
        if compat.get("vllmPriority") is not None:
            head["priority"] = compat["vllmPriority"]
        if compat.get("openRouterRouting"):
            head["provider"] = compat["openRouterRouting"]
        routing = compat.get("vercelGatewayRouting") or {}
        if chosen := {name: routing[name] for name in ("only", "order") if routing.get(name)}:
            head["providerOptions"] = {"gateway": chosen}
        level = self.level(request)
        head |= thinking_fields(self.info, compat, level, request.max_tokens or self.info.max_tokens)
        return head | self.info.sampling_params

    def name_head(self, request: ModelRequest) -> tuple[Any, ...]:
        # The prompt is a message here; the session is named only for providers with a cache per session.
        _, session_id, *rest = super().name_head(request)
        return (session_id if self._names_session(request) else "", *rest)

    def _names_session(self, request: ModelRequest) -> bool:
        return bool(request.session_id) and request.cache and "api.openai.com" in self.base_url

    def open_list(self, request: ModelRequest, limit: int) -> list[bytes]:
        field = self.compat["maxTokensField"]
        if field in self.info.sampling_params:
            return [b'"messages":[']
        return [b'"%b":%d,"messages":[' % (field.encode(), limit)]

    def first_item(self, request: ModelRequest) -> bytes:
        if not request.system:
            return b""
        content: Any = request.system
        if request.cache and self.compat["cacheControlFormat"] == "anthropic":
            content = [{"type": "text", "text": request.system, "cache_control": _CACHE}]
        role = "developer" if self.info.reasoning and self.compat["supportsDeveloperRole"] else "system"
        return to_json({"role": role, "content": content})

    def to_piece(self, message: Message) -> WireMessage:
        return self._to_piece(message, cache=False)

    def join_results(self, results: list[WireMessage]) -> bytes:
        wire = b",".join(result.wire for result in results)
        if images := b",".join(result.extra for result in results if result.extra):
            # A result holds only text; its images follow in a user message.
            note = to_json({"type": "text", "text": "Images from the tool results above:"})
            bridge = self.bridge + b"," if self.bridge else b""
            wire += b',%b{"role":"user","content":[%b,%b]}' % (bridge, note, images)
        return wire

    def mark_last(self, message: Message, piece: WireMessage) -> WireMessage:
        return self._to_piece(message, cache=True) if self.compat["cacheControlFormat"] == "anthropic" else piece

    def _to_piece(self, message: Message, *, cache: bool) -> WireMessage:
        if isinstance(message, AssistantMessage):
            calls = message.calls
            wire = self._assistant(message, calls) if is_replayable(message) else None
            if wire is None:
                return SKIP
            return WireMessage("assistant", to_json(wire), calls=tuple([(call.id, call.name) for call in calls]))
        if isinstance(message, ToolResultMessage):
            return self._result(message, cache=cache)
        content = user_content(message)
        if content is None:
            return SKIP
        blocks = list_blocks(content, self.info)
        if not blocks:
            return SKIP
        if not cache and all(isinstance(block, TextContent) for block in blocks):
            # Some servers accept parts only with images.
            return WireMessage("user", to_json({"role": "user", "content": join_text(blocks)}))
        parts = _mark([_user_part(block) for block in blocks], cache)
        return WireMessage("user", to_json({"role": "user", "content": parts}))

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
        function: dict[str, Any] = {"name": name, "description": description, "parameters": parameters}
        if self.compat.get("supportsStrictMode"):
            function["strict"] = False
        return {"type": "function", "function": function}

    def _assistant(self, message: AssistantMessage, calls: list[ToolCall]) -> dict[str, Any] | None:
        texts: list[str] = []
        thoughts: list[ThinkingContent] = []
        for block in message.content:
            if isinstance(block, TextContent):
                if block.text and not block.text.isspace():
                    texts.append(block.text)
            elif isinstance(block, ThinkingContent) and not block.redacted:
                thoughts.append(block)
        wire: dict[str, Any] = {"role": "assistant", "content": "" if self.bridge else None}
        said = [thought.thinking for thought in thoughts if thought.thinking.strip()]
        if said and (not is_own(message, self.info) or self.compat.get("requiresThinkingAsText")):
            texts = [*said, *texts]
        elif thoughts:
            wire |= _reasoning_fields(thoughts)
        if texts:
            wire["content"] = "\n\n".join(texts) if said else "".join(texts)
        if calls:
            wire["tool_calls"] = [_call(call) for call in calls]
        elif not texts:
            return None
        if self.info.reasoning and self.compat["requiresReasoningContentOnAssistantMessages"]:
            wire.setdefault("reasoning_content", "")
        return wire

    def _result(self, message: ToolResultMessage, *, cache: bool) -> WireMessage:
        blocks = list_blocks(message.content, self.info)
        images = [_user_part(block) for block in blocks if isinstance(block, ImageContent)]
        text = join_text(blocks) or ("(the result is an image)" if images else "(no output)")
        wire: dict[str, Any] = {
            "role": "tool",
            "tool_call_id": to_call_id(message.tool_call_id, _CALL_ID_CHARS),
            "content": _mark([{"type": "text", "text": text}], cache) if cache else text,
        }
        if self.compat.get("requiresToolResultName"):
            wire["name"] = message.tool_name
        extra = to_json(images)[1:-1] if images else b""
        return WireMessage("result", to_json(wire), extra, call_id=message.tool_call_id)


def _user_part(block: UserContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _mark(parts: list[dict[str, Any]], cache: bool) -> list[dict[str, Any]]:
    for part in reversed(parts if cache else []):
        if part["type"] == "text":
            part["cache_control"] = _CACHE
            break
    return parts


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": to_json(call.arguments).decode()}
    return {"id": to_call_id(call.id, _CALL_ID_CHARS), "type": "function", "function": function}


def _reasoning_fields(thoughts: list[ThinkingContent]) -> dict[str, Any]:
    """Thinking in the field it came in: the signature of a thinking block is that field's name, or the details."""
    for thought in thoughts:
        if details := parse_details(thought.thinking_signature):
            return {"reasoning_details": details}
    field = thoughts[0].thinking_signature
    if field in _REASONING_FIELDS:
        return {field: "\n".join(thought.thinking for thought in thoughts)}
    return {}


class _Call(Struct, eq=False):
    index: int
    given_id: str
    call_id: str
    name: str
    given: Any = None


class _ChatReading(ReplyReader):
    """Reads chat completion chunks, or one complete response. All blocks end when the stream ends."""

    def __init__(self, info: ModelInfo, draft: Draft) -> None:
        super().__init__(info, draft)
        self._text: int | None = None
        self._thinking: int | None = None
        self._field = ""
        self._details = ReasoningDetails()
        self._calls: dict[Any, _Call] = {}
        self._last_call: _Call | None = None
        self._order: list[_Call | str] = []

    def read_event(self, event: Any) -> bool:
        choices = event.get("choices")
        if not choices or event.get("error"):
            self.raise_error(event)
        if self.response_id is UNSET:
            self.set_response(event.get("id"), event.get("model"))
        if usage := event.get("usage"):
            self._read_usage(usage)
        if not choices:
            return True
        choice = choices[0]
        if not usage and choice.get("usage"):
            self._read_usage(choice["usage"])
        if delta := choice.get("delta"):
            self._read_message(delta)
        elif not self._order and choice.get("message"):
            self._read_message(choice["message"])
        if reason := choice.get("finish_reason"):
            if choice.get("error"):
                self.raise_error(choice)
            self.raw_stop = str(reason)
            self.is_complete = True
        return True

    def read_whole(self, data: Any) -> None:
        self.set_response(data.get("id"), data.get("model"))
        choice = data["choices"][0]
        message = choice["message"]
        for number, call in enumerate(message.get("tool_calls") or ()):
            # Here every entry is a separate call, whatever its id.
            call["index"] = number
        self._read_message(message)
        self.raw_stop = str(choice.get("finish_reason") or "")
        self._read_usage(data.get("usage"))

    def judge(self) -> tuple[StopReason, Failure | None]:
        match self.raw_stop.lower():
            case "length" | "max_tokens" | "max_output_tokens" | "model_length":
                return "length", None
            case "model_context_window_exceeded":
                return "error", fail(self.info, "overflow", f"the provider ended the reply with {self.raw_stop!r}")
            case "content_filter":
                return self.refuse("the provider's content filter stopped the reply")
            case "network_error" | "error":
                note = f"the provider ended the reply with {self.raw_stop!r}"
                return "error", fail(self.info, "overloaded", note)
        return "stop", None

    def close_open(self) -> None:
        for block in self._order:
            if block == "text" and self._text is not None:
                self.draft.close_text(self._text)
            elif block == "thinking" and self._thinking is not None:
                signature = self._details.render() or self._field or UNSET
                self.draft.close_thinking(self._thinking, signature=signature)
            elif isinstance(block, _Call):
                arguments = block.given or self.draft.written(block.index)
                self.close_call(block.index, block.call_id, block.name, arguments)
        self._order = []

    def _read_message(self, message: dict[str, Any]) -> None:
        """Read a message or a delta: both have the same fields."""
        refusal = None
        if not _RARE_FIELDS.isdisjoint(message):
            self._read_thoughts(message)
            refusal = message.get("refusal")
        if text := message.get("content"):
            self._write_text(text)
        if refusal:
            self._write_text(refusal)
            self.refusal += refusal
        for call in message.get("tool_calls") or ():
            self._read_call(call)

    def _read_thoughts(self, message: dict[str, Any]) -> None:
        for field in _REASONING_FIELDS:
            if (thought := message.get(field)) and isinstance(thought, str):
                self._field = self._field or field
                self.write(self._open_thought(), thought)
                break
        if details := message.get("reasoning_details"):
            self._open_thought()
            self._details.add(details)

    def _open_thought(self) -> int:
        if self._thinking is None:
            self._thinking = self.open_thinking()
            self._order.append("thinking")
        return self._thinking

    def _write_text(self, text: Any) -> None:
        if isinstance(text, list):
            text = "".join(str(part.get("text") or "") for part in text if isinstance(part, dict))
        if self._text is None:
            self._text = self.open_text()
            self._order.append("text")
        self.write(self._text, text)

    def _read_call(self, piece: dict[str, Any]) -> None:
        function = piece.get("function") or {}
        given_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
        arguments = function.get("arguments")
        slot = piece.get("index")
        # Without an index, a new id is a new call; a piece with neither continues the last call.
        call = self._last_call if slot is None and not given_id else self._calls.get(given_id if slot is None else slot)
        if call is not None and self._is_another(call, given_id, name, arguments):
            if given_id and given_id == call.given_id and arguments == self.draft.written(call.index):
                return  # the whole call, repeated
            call = None
        if call is None:
            index, call_id = self.open_call(given_id, name)
            call = _Call(index, given_id, call_id, name)
            self._calls[given_id if slot is None else slot] = call
            self._order.append(call)
        call.name, call.given_id = call.name or name, call.given_id or given_id
        self._last_call = call
        if isinstance(arguments, str):
            self.write(call.index, arguments)
        elif arguments is not None:
            call.given = arguments

    def _is_another(self, call: _Call, given_id: str, name: str, arguments: Any) -> bool:
        """Whether a piece starts a new call although it has the index of this one: many servers do not count."""
        if given_id and call.given_id and given_id != call.given_id:
            return True
        if not name or not call.name or name != call.name:
            return bool(name and call.name)
        if call.given is not None:
            return arguments is not None and not given_id
        if not isinstance(arguments, str) or not arguments.startswith("{"):
            return False
        # The same function again: a new object after a complete one is a new call.
        written = self.draft.written(call.index)
        return written.endswith("}") and not parse_arguments(written)[1]

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details") or {}
        read = count_tokens(
            details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
        )
        written = count_tokens(details.get("cache_write_tokens"))
        thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
        self.set_usage(
            fresh=max(0, count_tokens(usage.get("prompt_tokens")) - read - written),
            output=count_tokens(usage.get("completion_tokens")),
            cache_read=read,
            cache_write=written,
            thought=thought,
        )

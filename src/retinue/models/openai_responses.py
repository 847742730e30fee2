"""The wire format `openai-responses`, stateless: the provider stores nothing, reasoning comes back encrypted."""

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
from retinue.core.model import Draft, Failure, ModelRequest
from retinue.models.adapter import Adapter
from retinue.models.conversation import SKIP, WireMessage
from retinue.models.convert import is_own, is_replayable, list_blocks, to_call_id, to_json, user_content
from retinue.models.cost import count_tokens
from retinue.models.failures import ProviderError, classify_event, fail
from retinue.models.reply_reader import ReplyReader
from retinue.models.thinking_levels import can_disable

_CACHE_KEY_CHARS = 64
_LEAST_OUTPUT_TOKENS = 16
_ENCRYPTED = "reasoning.encrypted_content"
_TYPES = {"text": "message", "thinking": "reasoning", "call": "function_call"}
# The block that an event belongs to, and the field with the text: `delta` is a piece, others are the whole text.
_PIECES = {
    "response.output_text.delta": ("text", "delta"),
    "response.refusal.delta": ("text", "delta"),
    "response.function_call_arguments.delta": ("call", "delta"),
    "response.reasoning_summary_text.delta": ("thinking", "delta"),
    "response.reasoning_text.delta": ("thinking", "delta"),
    "response.output_text.done": ("text", "text"),
    "response.function_call_arguments.done": ("call", "arguments"),
}


class OpenAIResponsesModel(Adapter):
    default_base_url = "https://api.openai.com/v1"

    def url(self) -> str:
        return f"{self.base_url}/responses"

    def headers(self, key: str | None, request: ModelRequest) -> dict[str, str]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if request.session_id and request.cache:
            guess = "openrouter" if "openrouter.ai" in self.base_url else "openai"
            form = self.info.compat.get("sessionAffinityFormat") or guess
            if form == "openrouter":
                return headers | {"x-session-id": request.session_id}
            if form == "openai":
                headers["session_id"] = request.session_id
            headers["x-client-request-id"] = request.session_id
        return headers

    def open_reading(self, draft: Draft) -> ReplyReader:
        return _ResponsesReading(self.info, draft)

    def head(self, request: ModelRequest) -> dict[str, Any]:
        head: dict[str, Any] = {"model": self.info.id, "store": False, "stream": True}
        if request.system:
            head["instructions"] = request.system
        if request.session_id and request.cache:
            head["prompt_cache_key"] = request.session_id[:_CACHE_KEY_CHARS]
        if request.tools:
            head["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    # Explicit, because this API makes schemas strict if the field is absent.
                    **({} if self.info.compat.get("supportsStrictMode") is False else {"strict": False}),
                }
                for tool in request.tools
            ]
        if self.info.reasoning:
            level = self.level(request)
            effort = self.info.thinking_level_map.get(level)
            if level != "off":
                head["reasoning"] = {"effort": effort or level, "summary": "auto"}
                head["include"] = [_ENCRYPTED]
            elif can_disable(self.info):
                head["reasoning"] = {"effort": effort or "none"}
        return head | self.info.sampling_params

    def open_list(self, request: ModelRequest, limit: int) -> list[bytes]:
        field = "max_output_tokens"
        if not self.info.compat.get("supportsMaxOutputTokens", True) or field in self.info.sampling_params:
            return [b'"input":[']
        return [b'"%b":%d,"input":[' % (field.encode(), max(limit, _LEAST_OUTPUT_TOKENS))]

    def to_piece(self, message: Message) -> WireMessage:
        if isinstance(message, AssistantMessage):
            items = self._assistant_items(message) if is_replayable(message) else []
            calls = tuple((call.id, call.name) for call in message.calls)
            return WireMessage("assistant", to_json(items)[1:-1], calls=calls) if items else SKIP
        if isinstance(message, ToolResultMessage):
            call_id, _ = _split_id(message.tool_call_id)
            output = {"type": "function_call_output", "call_id": call_id, "output": self._result_output(message)}
            return WireMessage("result", to_json(output), call_id=message.tool_call_id)
        content = user_content(message)
        parts = [_user_part(block) for block in list_blocks(content, self.info)] if content is not None else []
        return WireMessage("user", to_json({"role": "user", "content": parts})) if parts else SKIP

    def _assistant_items(self, message: AssistantMessage) -> list[dict[str, Any]]:
        own = is_own(message, self.info)
        items: list[dict[str, Any]] = []
        for block in message.content:
            if isinstance(block, ToolCall):
                items.append(_call_item(block, own=own))
            elif isinstance(block, TextContent):
                if block.text.strip():
                    items.append(_text_item(block.text, block.text_signature if own else UNSET))
            elif item := _thinking_item(block, own=own):
                items.append(item)
        return items

    def _result_output(self, message: ToolResultMessage) -> str | list[dict[str, Any]]:
        blocks = list_blocks(message.content, self.info)
        if any(isinstance(block, ImageContent) for block in blocks):
            return [_user_part(block) for block in blocks]
        return join_text(blocks) or "(no output)"


def _user_part(block: UserContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{block.mime_type};base64,{block.data}"}


def _text_item(text: str, signature: str | UnsetType) -> dict[str, Any]:
    # The original item's id is optional; the phase distinguishes a note from the answer.
    item: dict[str, Any] = {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
    noted = _load_object(signature)
    if isinstance(noted.get("id"), str) and 0 < len(noted["id"]) <= 64:
        item = {"type": "message", "id": noted["id"], "status": "completed", **item}
        item["content"][0]["annotations"] = []
    if isinstance(noted.get("phase"), str):
        item["phase"] = noted["phase"]
    return item


def _call_item(call: ToolCall, *, own: bool) -> dict[str, Any]:
    call_id, item_id = _split_id(call.id)
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": call_id,
        "name": call.name,
        "arguments": to_json(call.arguments).decode(),
    }
    # The item id links a call to its reasoning item; only the model that created both accepts the link.
    if own and item_id.startswith("fc") and len(item_id) <= 64:
        item["id"] = item_id
    if own and isinstance(call.namespace, str):
        item["namespace"] = call.namespace
    return item


def _thinking_item(block: ThinkingContent, *, own: bool) -> dict[str, Any] | None:
    if own:
        item = _load_object(block.thinking_signature)
        return item if item.get("type") == "reasoning" else None
    return _text_item(block.thinking, UNSET) if block.thinking.strip() and not block.redacted else None


def _split_id(call_id: str) -> tuple[str, str]:
    """Split our id, `call id|item id` as in pi."""
    call, _, item = call_id.partition("|")
    return to_call_id(call), item


def _load_object(text: str | UnsetType) -> dict[str, Any]:
    if not isinstance(text, str) or not text.startswith("{"):
        return {}
    try:
        value = orjson.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class _Item(Struct, eq=False):
    kind: str
    index: int
    place: Any
    names: set[Any]
    call_id: str
    name: str


class _ResponsesReading(ReplyReader):
    """Reads response events, or one complete response; both use the same functions for items."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: list[_Item] = []
        self._names: set[Any] = set()
        self._incomplete = ""

    def read_event(self, event: Any) -> bool:
        kind = event.get("type") or ""
        if kind in _PIECES:
            self._read_piece(kind, event)
        elif kind == "response.output_item.added":
            self._begin(event["item"], event.get("output_index"))
        elif kind == "response.output_item.done":
            self._end(event["item"], self._find(_kind(event["item"]), event, event["item"]))
        elif kind == "response.reasoning_summary_part.added":
            opened = self._find("thinking", event)
            if opened is not None and event.get("summary_index"):
                self.write(opened.index, "\n\n")
        elif kind in ("response.created", "response.in_progress"):
            response = event.get("response") or {}
            self.set_response(response.get("id"), response.get("model"))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response") or {}
            self._read_rest(response.get("output") or ())
            self._read_end({"status": kind.removeprefix("response."), **response})
            self.is_complete = self.is_done = True
        else:
            self.raise_error(event)
            return kind not in ("ping", "keepalive")
        return True

    def read_whole(self, data: Any) -> None:
        for item in data["output"]:
            self._end(item, None)
        self._read_end(data)

    def judge(self) -> tuple[StopReason, Failure | None]:
        if self.raw_stop.startswith("incomplete"):
            if self._incomplete in ("max_output_tokens", "max_tokens"):
                return "length", None
            if self._incomplete == "content_filter":
                return self.refuse("the provider's content filter stopped the reply")
            note = f"the reply is incomplete ({self._incomplete or 'no reason given'})"
            return "error", fail(self.info, "truncated", note)
        if self.raw_stop == "cancelled":
            return "error", fail(self.info, "truncated", "the provider cancelled the reply")
        return "stop", None

    def close_open(self) -> None:
        for opened in list(self._open):
            self._end({}, opened)

    def _find(self, kind: str, event: dict[str, Any], item: dict[str, Any] | None = None) -> _Item | None:
        """The open item that an event refers to: by id, else by position, else the last. Servers may omit both."""
        names = {event.get("item_id"), *_names(item or {})} - {None, ""}
        place = event.get("output_index")
        open_items = [opened for opened in reversed(self._open) if opened.kind == kind]
        for opened in open_items:
            if opened.names & names:
                return opened
        if place is not None:
            return next((opened for opened in open_items if opened.place == place), None)
        if names and any(opened.names for opened in open_items):
            return None
        return open_items[0] if open_items else None

    def _read_piece(self, kind: str, event: dict[str, Any]) -> None:
        wanted, field = _PIECES[kind]
        opened = self._find(wanted, event)
        if opened is None and wanted != "call":
            opened = self._begin({"type": _TYPES[wanted], "id": event.get("item_id")}, event.get("output_index"))
        piece = event.get(field)
        if opened is None or not isinstance(piece, str):
            return  # a call that was not announced has no name before its end
        if field != "delta":
            self._complete(opened, piece)
            return
        self.write(opened.index, piece)
        if kind == "response.refusal.delta":
            self.refusal += piece

    def _begin(self, item: dict[str, Any], place: Any = None) -> _Item | None:
        kind = _kind(item)
        name = call_id = ""
        if kind == "text":
            index = self.open_text()
        elif kind == "thinking":
            index = self.open_thinking()
        elif kind == "call":
            name = str(item.get("name") or "")
            parts = [part for part in (item.get("call_id"), item.get("id")) if isinstance(part, str) and part]
            index, call_id = self.open_call("|".join(parts), name)
        else:
            return None
        opened = _Item(kind, index, place, _names(item), call_id, name)
        self._names |= opened.names
        self._open.append(opened)
        return opened

    def _end(self, item: dict[str, Any], opened: _Item | None) -> None:
        opened = opened or self._begin(item)
        if opened is None:
            return
        self._open.remove(opened)
        if opened.kind == "text":
            self._complete(opened, _message_text(item))
            if not self.refusal:
                self.refusal = "".join(part["refusal"] for part in item.get("content") or () if part.get("refusal"))
            self.draft.close_text(opened.index, signature=_text_signature(item))
        elif opened.kind == "thinking":
            self._complete(opened, _reasoning_text(item))
            signature = orjson.dumps(item).decode() if item.get("id") else UNSET
            self.draft.close_thinking(opened.index, signature=signature)
        else:
            arguments = item.get("arguments") or self.draft.written(opened.index)
            self._complete(opened, arguments if isinstance(arguments, str) else to_json(arguments).decode())
            namespace = item.get("namespace")
            self.close_call(
                opened.index,
                opened.call_id,
                opened.name or str(item.get("name") or ""),
                arguments,
                namespace=namespace if isinstance(namespace, str) else UNSET,
            )

    def _read_rest(self, output: Any) -> None:
        """Read items of the final response that its events did not bring."""
        is_empty = not self.draft.has_content
        for item in output:
            kind = _kind(item)
            opened = self._find(kind, {}, item) if not is_empty else None
            if opened or is_empty or (kind == "call" and item.get("call_id") and not _names(item) & self._names):
                self._end(item, opened)

    def _complete(self, opened: _Item, text: str) -> None:
        """Write the text of the finished item that the deltas did not bring."""
        written = self.draft.written(opened.index)
        if len(text) > len(written) and text.startswith(written):
            self.write(opened.index, text[len(written) :])

    def _read_end(self, response: dict[str, Any]) -> None:
        self.set_response(response.get("id"), response.get("model"))
        self._read_usage(response.get("usage"))
        status = str(response.get("status") or "")
        self._incomplete = str((response.get("incomplete_details") or {}).get("reason") or "")
        self.raw_stop = f"{status}.{self._incomplete}" if self._incomplete else status
        if status == "failed" or response.get("error"):
            error = response.get("error") or {"message": "the reply failed"}
            raise ProviderError(classify_event(self.info, error, self.headers))

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("input_tokens_details") or {}
        read, written = count_tokens(details.get("cached_tokens")), count_tokens(details.get("cache_write_tokens"))
        thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens")
        self.set_usage(
            fresh=max(0, count_tokens(usage.get("input_tokens")) - read - written),
            output=count_tokens(usage.get("output_tokens")),
            cache_read=read,
            cache_write=written,
            thought=thought,
        )


def _message_text(item: dict[str, Any]) -> str:
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in item.get("content") or ())


def _reasoning_text(item: dict[str, Any]) -> str:
    summary = "\n\n".join(str(part.get("text") or "") for part in item.get("summary") or ())
    return summary or "\n\n".join(str(part.get("text") or "") for part in item.get("content") or ())


def _text_signature(item: dict[str, Any]) -> str | UnsetType:
    if not item.get("id"):
        return UNSET
    noted = {"v": 1, "id": item["id"]}
    if item.get("phase"):
        noted["phase"] = item["phase"]
    return orjson.dumps(noted).decode()


def _kind(item: dict[str, Any]) -> str:
    return next((kind for kind, name in _TYPES.items() if name == item.get("type")), "")


def _names(item: dict[str, Any]) -> set[Any]:
    """The ids that later events may use for an item; llama.cpp uses the call id."""
    return {item.get("id"), item.get("call_id")} - {None, ""}

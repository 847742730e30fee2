"""The wire format `google-generative-ai`: Gemini's generateContent."""

from typing import Any
from urllib.parse import quote as quote_url

from msgspec import UNSET, UnsetType

from retinue.core.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    UserContent,
    join_text,
)
from retinue.core.model import Draft, Failure, ModelInfo, ModelRequest
from retinue.core.pattern import late_pattern
from retinue.models.adapter import Adapter
from retinue.models.conversation import SKIP, WireMessage
from retinue.models.convert import is_own, is_replayable, list_blocks, to_call_id, to_json, user_content
from retinue.models.cost import count_tokens
from retinue.models.failures import fail
from retinue.models.reply_reader import ReplyReader
from retinue.models.thinking_levels import find_budget

_GEMINI = late_pattern(r"gemini(?:-live)?-(\d+)")
_BY_LEVEL = late_pattern(r"gemini-3(?:\.\d+)?-(?:pro|flash)|gemini-flash(?:-lite)?-latest|gemma-?4")
_BASE64 = late_pattern(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_REFUSALS = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"})
_BAD_CALLS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"})
_BUDGETS: dict[ThinkingLevel, int] = {"minimal": 128, "low": 2048, "medium": 8192}


class GoogleModel(Adapter):
    default_base_url = "https://generativelanguage.googleapis.com/v1beta"

    def __init__(self, info: ModelInfo, *args: Any) -> None:
        super().__init__(info, *args)
        major = _GEMINI.search(info.id.lower())
        self._has_call_ids = major is not None and int(major[1]) >= 3
        self._has_image_results = major is None or int(major[1]) >= 3

    def url(self) -> str:
        return f"{self.base_url}/models/{quote_url(self.info.id, safe='')}:streamGenerateContent?alt=sse"

    def headers(self, key: str | None, request: ModelRequest) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def open_reading(self, draft: Draft) -> ReplyReader:
        return _GoogleReading(self.info, draft)

    def head(self, request: ModelRequest) -> dict[str, Any]:
        head: dict[str, Any] = {}
        if request.system:
            head["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            declarations = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
                for tool in request.tools
            ]
            head["tools"] = [{"functionDeclarations": declarations}]
        return head

    def open_list(self, request: ModelRequest, limit: int) -> list[bytes]:
        config: dict[str, Any] = {"maxOutputTokens": limit}
        if thinking := self._thinking(request):
            config["thinkingConfig"] = thinking
        return [b'"generationConfig":', to_json(config), b',"contents":[']

    def to_piece(self, message: Message) -> WireMessage:
        if isinstance(message, AssistantMessage):
            parts = self._model_parts(message) if is_replayable(message) else []
            calls = tuple((call.id, call.name) for call in message.calls)
            return WireMessage("assistant", to_json({"role": "model", "parts": parts}), calls=calls) if parts else SKIP
        if isinstance(message, ToolResultMessage):
            return self._result(message)
        content = user_content(message)
        parts = [_user_part(block) for block in list_blocks(content, self.info)] if content is not None else []
        return WireMessage("user", to_json({"role": "user", "parts": parts})) if parts else SKIP

    def join_results(self, results: list[WireMessage]) -> bytes:
        wire = b'{"role":"user","parts":[%b]}' % b",".join(result.wire for result in results)
        if images := b",".join(result.extra for result in results if result.extra):
            wire += b',{"role":"user","parts":[{"text":"Images from the tool results above:"},%b]}' % images
        return wire

    def _thinking(self, request: ModelRequest) -> dict[str, Any]:
        if not self.info.reasoning:
            return {}
        level = self.level(request)
        by_level = bool(_BY_LEVEL.search(self.info.id.lower()))
        if level == "off":
            # 2.5 Pro always thinks; this is the least it accepts.
            return {"thinkingBudget": 128 if "2.5-pro" in self.info.id else 0}
        if by_level:
            word = self.info.thinking_level_map.get(level) or ("high" if level in ("xhigh", "max") else level)
            # A model that cannot stop thinking thinks as little as possible, and its thoughts are not shown.
            shown = {"includeThoughts": True} if request.thinking != "off" else {}
            return {**shown, "thinkingLevel": word.upper()}
        if (chosen := find_budget(self.info, level)) is not None:
            return {"includeThoughts": True, "thinkingBudget": chosen}
        if "2.5" not in self.info.id:
            return {"includeThoughts": True, "thinkingBudget": -1}
        budget = _BUDGETS.get(level, 32_768 if "pro" in self.info.id else 24_576)
        if "flash-lite" in self.info.id:
            budget = max(budget, 512)
        return {"includeThoughts": True, "thinkingBudget": budget}

    def _model_parts(self, message: AssistantMessage) -> list[dict[str, Any]]:
        own = is_own(message, self.info)
        parts: list[dict[str, Any]] = []
        for block in message.content:
            if isinstance(block, ToolCall):
                call = {"name": block.name, "args": block.arguments}
                if self._has_call_ids:
                    call["id"] = to_call_id(block.id)
                parts.append({"functionCall": call, **_signed(block.thought_signature, own=own)})
            elif isinstance(block, ThinkingContent):
                signed = _signed(block.thinking_signature, own=own)
                if signed or (block.thinking.strip() and not block.redacted):
                    thought = {"thought": True} if own else {}
                    parts.append({**thought, "text": block.thinking, **signed})
            elif (signed := _signed(block.text_signature, own=own)) or block.text.strip():
                parts.append({"text": block.text, **signed})
        return parts

    def _result(self, message: ToolResultMessage) -> WireMessage:
        blocks = list_blocks(message.content, self.info)
        images = [_user_part(block) for block in blocks if isinstance(block, ImageContent)]
        text = join_text(blocks) or ("(the result is an image)" if images else "")
        response: dict[str, Any] = {
            "name": message.tool_name,
            "response": {"error" if message.is_error else "output": text},
        }
        if self._has_call_ids:
            response["id"] = to_call_id(message.tool_call_id)
        if images and self._has_image_results:
            response["parts"] = images
        extra = to_json(images)[1:-1] if images and not self._has_image_results else b""
        return WireMessage("result", to_json({"functionResponse": response}), extra, call_id=message.tool_call_id)


def _user_part(block: UserContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"text": block.text}
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _signed(signature: str | UnsetType, *, own: bool) -> dict[str, Any]:
    # The API expects base64 here: anything else fails the whole request.
    if own and isinstance(signature, str) and signature and _BASE64.fullmatch(signature):
        return {"thoughtSignature": signature}
    return {}


class _GoogleReading(ReplyReader):
    """Reads generateContent responses; a stream is a sequence of them, each with further parts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kind = ""
        self._index = -1
        self._signature: str | UnsetType = UNSET
        self._blocked = ""

    def read_event(self, event: Any) -> bool:
        if not event.get("candidates") or event.get("error"):
            self.raise_error(event)
        self.read_whole(event)
        return True

    def read_whole(self, data: Any) -> None:
        if self.response_id is UNSET:
            self.set_response(data.get("responseId"), data.get("modelVersion"))
        if feedback := data.get("promptFeedback"):
            self._blocked = str(feedback.get("blockReason") or "")
            self.is_complete = self.is_complete or bool(self._blocked)
        for candidate in (data.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                self._read_part(part)
            if reason := candidate.get("finishReason"):
                self.raw_stop = str(reason)
                self.is_complete = True
        self._read_usage(data.get("usageMetadata"))

    def judge(self) -> tuple[StopReason, Failure | None]:
        if self._blocked:
            self.raw_stop = self.raw_stop or self._blocked
            return self.refuse(f"the request was blocked ({self._blocked})")
        if self.raw_stop == "MAX_TOKENS":
            return "length", None
        if self.raw_stop in _REFUSALS:
            return self.refuse(f"the reply was blocked ({self.raw_stop})")
        if self.raw_stop in _BAD_CALLS:
            note = f"the model wrote a malformed tool call ({self.raw_stop})"
            return "error", fail(self.info, "protocol", note, retryable=True)
        return "stop", None

    def close_open(self) -> None:
        if self._kind == "text":
            self.draft.close_text(self._index, signature=self._signature)
        elif self._kind == "thinking":
            self.draft.close_thinking(self._index, signature=self._signature)
        self._kind = ""
        self._signature = UNSET

    def _read_part(self, part: dict[str, Any]) -> None:
        signature = part.get("thoughtSignature")
        if isinstance(text := part.get("text"), str):
            if not text and not signature:
                return  # streams end with an empty part, complete replies do not
            kind = "thinking" if part.get("thought") else "text"
            if kind != self._kind:
                self.close_open()
                self._kind = kind
                self._index = self.open_thinking() if kind == "thinking" else self.open_text()
            self.write(self._index, text)
            if isinstance(signature, str) and signature:
                self._signature = signature
        elif call := part.get("functionCall"):
            self.close_open()
            name = str(call.get("name") or "")
            arguments = call.get("args") or {}
            index, call_id = self.open_call(str(call.get("id") or ""), name)
            self.write(index, arguments if isinstance(arguments, str) else to_json(arguments).decode())
            signed = signature if isinstance(signature, str) and signature else UNSET
            self.close_call(index, call_id, name, arguments, signature=signed)

    def _read_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        cached = count_tokens(usage.get("cachedContentTokenCount"))
        thought = usage.get("thoughtsTokenCount")
        self.set_usage(
            fresh=max(0, count_tokens(usage.get("promptTokenCount")) - cached),
            output=count_tokens(usage.get("candidatesTokenCount")) + count_tokens(thought),
            cache_read=cached,
            thought=thought,
        )

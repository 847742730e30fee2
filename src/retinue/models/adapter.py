"""Base class of the wire-format adapters: build the request, wait for the governor, send, read, report.

A subclass for each wire format provides the URL, headers, body and a reader. This file must not know a wire format or
retries.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from retinue.core.errors import ModelError, quote
from retinue.core.messages import Message, ThinkingLevel
from retinue.core.model import Draft, Model, ModelInfo, ModelRequest, Reply
from retinue.models.conversation import WireConversation, WireMessage
from retinue.models.convert import to_json
from retinue.models.failures import ProviderError, redact_failure
from retinue.models.governor import Governor
from retinue.models.reply_reader import ReplyReader
from retinue.models.thinking_levels import clamp_level
from retinue.models.transport import HttpCall, Timing, Transport

_CONTEXT_MARGIN_TOKENS = 4096
_LEAST_OUTPUT_TOKENS = 1024
_SECRET_NAME = r"(?i)auth|key|token|secret|cookie"


class Adapter:
    default_base_url = ""
    bridge = b""
    """A message that must stand between results and a user message; usually empty."""

    def __init__(
        self, info: ModelInfo, transport: Transport, key: str | None, governor: Governor, timing: Timing | None
    ) -> None:
        self.info = info
        self._transport = transport
        self._key = key
        self._governor = governor
        self._timing = timing or Timing()
        self._memo_key = (type(self).__name__, info.ref)
        self._levels: dict[ThinkingLevel, ThinkingLevel] = {}
        self._last_head: tuple[Any, bytes] = (None, b"")
        self._headers_key: Any = None
        self._headers: Mapping[str, str] = {}
        self.base_url = (info.base_url or self.default_base_url).rstrip("/")

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Answer the request. MUST NOT raise."""
        reading = self.open_reading(draft)
        try:
            headers = self._merge_headers(request)
            body = whole = self.build_body(request)
            while body:
                call = HttpCall(self.info, self.url(), headers, body, self._timing)
                if self._governor.is_holding(self.info.provider):
                    await self._governor.admit(self.info.provider, draft.say)
                await self._transport.stream(call, reading)
                body = self.go_on(whole, reading)
            reply = reading.finish()
        except ProviderError as error:
            reply = reading.fail(error.failure)
        self._governor.record(self.info.provider, reply.failure)
        if reply.failure is not None:
            return reading.fail(redact_failure(reply.failure, self._secrets()))
        return reply

    def build_body(self, request: ModelRequest) -> bytes:
        """The request body. Messages are converted once; later turns only copy their bytes."""
        conversation = request.memo.get(self._memo_key)
        if conversation is None:
            conversation = request.memo[self._memo_key] = WireConversation(self)
        marks = (len(request.messages),) if request.marks is None else request.marks
        parts = conversation.render(request.messages, marks=marks if request.cache else (), shared=request.shared)
        head_key = self.name_head(request)
        if conversation.head_key != head_key:
            # Runs that start together usually have the same head.
            if self._last_head[0] != head_key:
                self._last_head = head_key, to_json(self.head(request))[1:-1]
            conversation.head_key, conversation.head = self._last_head
        chars = sum(map(len, parts)) - conversation.image_chars
        # A fork begins with the bytes of another request, and the limit is among them.
        if request.shared and chars - conversation.shared_chars < _CONTEXT_MARGIN_TOKENS * 2:
            chars = conversation.shared_chars
        limit = self._limit_output(request, len(conversation.head) + chars)
        first = self.first_item(request)
        if first and any(parts):
            first += b","
        comma = b"," if conversation.head else b""
        return b"".join([b"{", conversation.head, comma, *self.open_list(request, limit), first, *parts, b"]}"])

    def go_on(self, body: bytes, reading: ReplyReader) -> bytes:
        """The body of a further request for the same reply, if the provider wants one; empty otherwise."""
        return b""

    def open_reading(self, draft: Draft) -> ReplyReader:
        raise NotImplementedError

    def url(self) -> str:
        raise NotImplementedError

    def headers(self, key: str | None, request: ModelRequest) -> dict[str, str]:
        """The headers of this API; headers from the model's configuration are added and override them."""
        raise NotImplementedError

    def head(self, request: ModelRequest) -> dict[str, Any]:
        """The part of the body that does not change from turn to turn."""
        raise NotImplementedError

    def name_head(self, request: ModelRequest) -> tuple[Any, ...]:
        """Everything that `head` depends on, as a cache key."""
        system, session_id = request.system, request.session_id
        tools = tuple(request.tools)
        return system, session_id, tools, request.thinking, request.max_tokens, request.cache

    def open_list(self, request: ModelRequest, limit: int) -> list[bytes]:
        """The rest of the body, up to and including the bracket that opens the list of messages."""
        raise NotImplementedError

    def first_item(self, request: ModelRequest) -> bytes:
        """A list item before the messages."""
        return b""

    def to_piece(self, message: Message) -> WireMessage:
        raise NotImplementedError

    def join_results(self, results: list[WireMessage]) -> bytes:
        """The results of one turn as list items."""
        return b",".join(result.wire for result in results)

    def mark_last(self, message: Message, piece: WireMessage) -> WireMessage:
        """The last message with its cache mark; most APIs have none."""
        return piece

    def level(self, request: ModelRequest) -> ThinkingLevel:
        """The nearest thinking level that the model supports."""
        wanted = request.thinking
        if wanted not in self._levels:
            self._levels[wanted] = clamp_level(self.info, wanted)
        return self._levels[wanted]

    def _merge_headers(self, request: ModelRequest) -> Mapping[str, str]:
        headers_key = (request.session_id, request.cache, request.thinking)
        if self._headers_key != headers_key:
            merged = {"content-type": "application/json", "user-agent": "retinue", "accept": "text/event-stream"}
            # Compression would delay events until a block is full.
            merged["accept-encoding"] = "identity"
            merged |= self.headers(self._key, request)
            merged |= {name.lower(): value for name, value in self.info.headers.items()}
            self._headers, self._headers_key = merged, headers_key
        return self._headers

    def _limit_output(self, request: ModelRequest, chars: int) -> int:
        wanted = request.max_tokens or self.info.max_tokens
        window = self.info.context_window
        room = window - chars // 4 - min(_CONTEXT_MARGIN_TOKENS, window // 8)
        return min(wanted, max(room, min(_LEAST_OUTPUT_TOKENS, window // 8)))

    def _secrets(self) -> tuple[str, ...]:
        named = [value for name, value in self.info.headers.items() if re.search(_SECRET_NAME, name)]
        return tuple(
            secret for secret in (self._key, *named, *(value.removeprefix("Bearer ") for value in named)) if secret
        )


# Module and class: a process usually needs one of them, and only that one is imported.
ADAPTERS = {
    "anthropic-messages": ("anthropic", "AnthropicModel"),
    "openai-completions": ("openai_chat", "OpenAIChatModel"),
    "openai-responses": ("openai_responses", "OpenAIResponsesModel"),
    "google-generative-ai": ("google", "GoogleModel"),
}


def build_model(
    info: ModelInfo, *, transport: Transport, key: str | None, governor: Governor, timing: Timing | None = None
) -> Model:
    """Build the model for the wire format `info.api`. Raises ModelError if that is unknown."""
    if info.api not in ADAPTERS:
        raise ModelError(f"{info.ref}: unknown api {quote(info.api)}; expected one of {', '.join(ADAPTERS)}")
    module, name = ADAPTERS[info.api]
    adapter: type[Adapter] = getattr(import_module(f"retinue.models.{module}"), name)
    return adapter(info, transport, key, governor, timing)

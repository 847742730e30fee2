"""The Model interface: one async function from a request to a reply, with the reply streamed piece by piece.

This file must not know wire formats, HTTP or retries.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantContent,
    AssistantMessage,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    Usage,
)

FailureKind: TypeAlias = Literal[
    "rate",  # 429: rate limited
    "overloaded",  # 5xx, or an error event that says so
    "network",  # refused, reset, DNS, TLS, proxy
    "timeout",  # no headers in time, or the total deadline
    "stalled",  # the stream went silent
    "truncated",  # the stream ended without its final event
    "auth",  # 401, 403, no key
    "missing",  # 404: the model or the endpoint
    "request",  # 400, 413, 422: the request itself
    "overflow",  # the context is too long for the model
    "refused",  # content filter or refusal
    "protocol",  # a response that cannot be parsed
    "budget",  # not sent: the remaining budget does not cover the answer
    "record",  # not sent: the run is durable, but its record cannot be written
]


class ToolSpec(Struct, frozen=True, dict=True):
    """The name, description and parameters of a tool, as sent to the model."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON schema of type object."""
    checks_itself: bool = False
    """The tool checks its arguments itself, by more of the standard than we do before a call."""
    limits_itself: bool = False
    """The tool limits the time of its calls itself: it waits for an agent or a person."""
    alias_of: str = ""
    """The tool's own name, if a definition renames it; `name` is then the new name."""

    @property
    def own_name(self) -> str:
        """The name that permission rules use."""
        return self.alias_of or self.name

    @cached_property
    def size(self) -> int:
        """The number of characters that the model gets, counted once for all runs."""
        return len(self.name) + len(self.description) + len(encode_json(self.parameters))


class PriceTier(Struct, frozen=True, rename="camel"):
    """Prices that apply to the whole request if its input is larger than the limit."""

    input_tokens_above: int
    input: float
    output: float
    cache_read: float = 0
    cache_write: float = 0


class Price(Struct, frozen=True, rename="camel"):
    """US dollars per million tokens."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    tiers: tuple[PriceTier, ...] = ()


class ModelInfo(Struct, frozen=True, rename="camel"):
    provider: str
    id: str
    api: str
    name: str = ""
    base_url: str = ""
    reasoning: bool = False
    thinking_level_map: dict[str, str | None] = {}
    """The provider's value for each level; None marks an unsupported level."""
    thinking_budgets: Mapping[str, int] = {}
    """Thinking tokens per level, as set by the user."""
    input: tuple[str, ...] = ("text",)
    cost: Price = Price()
    context_window: int = 128_000
    max_tokens: int = 16_384
    headers: dict[str, str] = {}
    """May hold secrets once resolved: never show, log or store them."""
    compat: dict[str, Any] = {}
    sampling_params: dict[str, Any] = {}
    is_image_blocked: bool = False
    """The user does not want images to be sent."""
    account: str = ""
    """A hash of the key, once that is known: usage limits are counted per key."""

    @property
    def image_refusal(self) -> str:
        """Why images are not sent to the model; empty if they are sent."""
        if "image" in self.input:
            return ""
        return "the setting images.blockImages is on" if self.is_image_blocked else f"{self.ref} gets text only"

    @property
    def ref(self) -> str:
        """`provider/id`, as users type it."""
        return f"{self.provider}/{self.id}"


class ModelRequest(Struct):
    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    thinking: ThinkingLevel = "off"
    max_tokens: int | None = None
    session_id: str = ""
    """Stays the same for a whole conversation: the key of provider-side caches."""
    cache: bool = True
    """False for one-off requests such as summaries, which should not write to the cache."""
    marks: tuple[int, ...] | None = None
    """Cache marks: how many messages come before each. None marks the last message only."""
    shared: int = 0
    """How many of the messages were the whole of another run's request; set in the first request of a fork."""
    memo: dict[Any, Any] = {}
    """Scratch space that a run keeps between turns, for values an adapter computes once per message."""


class Failure(Struct, frozen=True):
    """Why a reply failed, so that the caller can decide on a retry."""

    kind: FailureKind
    message: str
    """One line for the user: provider, model, status, what to do. Never contains a key."""
    retryable: bool = False
    status: int | None = None
    retry_after_s: float | None = None


class Reply(Struct, frozen=True):
    """A finished reply. `message.stop_reason` is `error` if and only if `failure` is set."""

    message: AssistantMessage
    failure: Failure | None = None
    faults: Mapping[str, str] = {}
    """Ids of tool calls that must not run, with the reason given to the model (arguments cut off or not JSON)."""


class Delta(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One piece of a streamed reply; the fields are those of pi's `assistantMessageEvent`."""

    type: Literal[
        "text_start",
        "text_delta",
        "text_end",
        "thinking_start",
        "thinking_delta",
        "thinking_end",
        "toolcall_start",
        "toolcall_delta",
        "toolcall_end",
    ]
    content_index: int
    delta: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    tool_call: ToolCall | UnsetType = UNSET


class _Block:
    __slots__ = ("call_id", "done", "kind", "name", "parts", "signature")

    def __init__(self, kind: Literal["text", "thinking", "toolcall"], call_id: str = "", name: str = "") -> None:
        self.kind = kind
        self.call_id = call_id
        self.name = name
        self.parts: list[str] = []
        self.signature: str | UnsetType = UNSET
        self.done: AssistantContent | None = None


class Draft:
    """A reply while it is being received: an adapter writes it, the loop reads it, even after an abort.

    Without a watcher, progress is visible only in `size`.
    """

    __slots__ = ("_blocks", "info", "on_begin", "say", "started_ms", "thinking", "usage", "watcher")

    def __init__(
        self,
        info: ModelInfo,
        *,
        started_ms: int,
        watcher: Callable[[Delta], None] | None = None,
        thinking: ThinkingLevel = "off",
    ) -> None:
        self.info = info
        self.started_ms = started_ms
        self.watcher = watcher
        self.say: Callable[[str], None] | None = None
        """Called with a line for the user that says why the reply is late."""
        self.on_begin: Callable[[], None] | None = None
        """Called when the first bytes of the reply arrive, if the adapter can tell."""
        self.thinking = thinking
        self.usage = Usage()
        self._blocks: list[_Block] = []

    def open_text(self) -> int:
        """Begin a text block; returns its index."""
        return self._open(_Block("text"), Delta("text_start", len(self._blocks)))

    def open_thinking(self) -> int:
        return self._open(_Block("thinking"), Delta("thinking_start", len(self._blocks)))

    def open_call(self, call_id: str, name: str) -> int:
        start = Delta("toolcall_start", len(self._blocks), id=call_id, tool_name=name)
        return self._open(_Block("toolcall", call_id, name), start)

    def add(self, index: int, piece: str) -> None:
        """Append a piece of text, thinking or JSON arguments to an open block."""
        if not piece:
            return
        block = self._blocks[index]
        block.parts.append(piece)
        if self.watcher is not None:
            self.watcher(Delta(f"{block.kind}_delta", index, delta=piece))  # type: ignore[arg-type]

    def written(self, index: int) -> str:
        """The content of a block so far."""
        return "".join(self._blocks[index].parts)

    def close_text(self, index: int, *, signature: str | UnsetType = UNSET) -> None:
        text = self.written(index)
        self._close(index, TextContent(text, signature), Delta("text_end", index, content=text))

    def close_thinking(self, index: int, *, signature: str | UnsetType = UNSET, redacted: bool = False) -> None:
        text = self.written(index)
        done = ThinkingContent(text, signature, redacted)
        self._close(index, done, Delta("thinking_end", index, content=text))

    def close_call(self, index: int, call: ToolCall) -> None:
        self._close(index, call, Delta("toolcall_end", index, tool_call=call))

    def finish(
        self,
        stop_reason: StopReason,
        *,
        error: str | UnsetType = UNSET,
        response_id: str | UnsetType = UNSET,
        response_model: str | UnsetType = UNSET,
        raw_stop_reason: str | UnsetType = UNSET,
    ) -> AssistantMessage:
        """Build the message. Open text is kept; an open tool call is dropped, because its arguments are incomplete."""
        return AssistantMessage(
            content=self._content(),
            api=self.info.api,
            provider=self.info.provider,
            model=self.info.id,
            usage=self.usage,
            stop_reason=stop_reason,
            timestamp=self.started_ms,
            error_message=error,
            response_id=response_id,
            response_model=response_model,
            raw_stop_reason=raw_stop_reason,
            thinking_level=self.thinking if self.info.reasoning else UNSET,
        )

    @property
    def size(self) -> int:
        """The number of pieces so far; grows while the reply arrives."""
        return sum(1 + len(block.parts) for block in self._blocks)

    @property
    def has_content(self) -> bool:
        return bool(self._blocks)

    def _content(self) -> list[AssistantContent]:
        content: list[AssistantContent] = []
        for block in self._blocks:
            if block.done is not None:
                content.append(block.done)
            elif block.kind == "text" and block.parts:
                content.append(TextContent("".join(block.parts)))
            elif block.kind == "thinking" and block.parts:
                content.append(ThinkingContent("".join(block.parts)))
        return content

    def _open(self, block: _Block, start: Delta) -> int:
        self._blocks.append(block)
        if self.watcher is not None:
            self.watcher(start)
        return start.content_index

    def _close(self, index: int, done: AssistantContent, end: Delta) -> None:
        self._blocks[index].done = done
        if self.watcher is not None:
            self.watcher(end)


class Model(Protocol):
    """A language model, or a stand-in for one."""

    @property
    def info(self) -> ModelInfo: ...

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Answer the request, writing pieces into the draft.

        MUST NOT raise: a failure is a Reply with stop reason `error`. The only exception is cancellation; the draft
        then holds what was received so far.
        """
        ...

"""The Model port: one async function from a request to a reply, told piece by piece to whoever watches.

This file must not know wire formats, HTTP or retries.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType

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
    "rate",  # 429: told to wait
    "overloaded",  # 5xx, or an error event that says so
    "network",  # refused, reset, DNS, TLS, proxy
    "timeout",  # no headers in time, or the total deadline
    "stalled",  # the stream went silent
    "truncated",  # the stream ended without its last event
    "auth",  # 401, 403, no key
    "missing",  # 404: the model or the endpoint
    "request",  # 400, 413, 422: the request itself
    "overflow",  # the context is too long for the model
    "refused",  # content filter or refusal
    "protocol",  # an answer nobody can read
    "budget",  # not asked: the lease does not cover the answer
    "record",  # not asked: the run is durable, and cannot be put on record
]


class ToolSpec(Struct, frozen=True):
    """What a model is told about a tool."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments, an object."""
    alias_of: str = ""
    """The tool's own name where a definition calls it by another one, which is then `name`."""

    @property
    def own_name(self) -> str:
        """The name that rules about tools know it by."""
        return self.alias_of or self.name


class PriceTier(Struct, frozen=True, rename="camel"):
    """Prices that hold for a whole request once its input is larger than the limit."""

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
    """What is known about a model before it is called."""

    provider: str
    id: str
    api: str
    name: str = ""
    base_url: str = ""
    reasoning: bool = False
    thinking_level_map: dict[str, str | None] = {}
    """Provider's value per level; None marks a level as unsupported."""
    thinking_budgets: Mapping[str, int] = {}
    """Tokens for thinking per level, where the user has chosen them."""
    input: tuple[str, ...] = ("text",)
    cost: Price = Price()
    context_window: int = 128_000
    max_tokens: int = 16_384
    headers: dict[str, str] = {}
    """May carry secrets once resolved: never shown, logged or stored."""
    compat: dict[str, Any] = {}
    sampling_params: dict[str, Any] = {}
    is_image_blocked: bool = False
    """The user wants no images sent."""

    @property
    def image_refusal(self) -> str:
        """Why the model is sent no images; empty when it is."""
        if "image" in self.input:
            return ""
        return "the setting images.blockImages is on" if self.is_image_blocked else f"{self.ref} gets text only"

    @property
    def ref(self) -> str:
        """`provider/id`, the name users type."""
        return f"{self.provider}/{self.id}"


class ModelRequest(Struct):
    """Everything one model call depends on."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    thinking: ThinkingLevel = "off"
    max_tokens: int | None = None
    session_id: str = ""
    """Stable for a conversation: key for provider-side caches."""
    cache: bool = True
    """False for one-off requests such as summaries: no cache is written."""
    memo: dict[Any, Any] = {}
    """Scratch of the run, kept between turns, for whatever an adapter wants to compute once per message."""


class Failure(Struct, frozen=True):
    """Why a reply failed, for whoever decides about another attempt."""

    kind: FailureKind
    message: str
    """One line for people: provider, model, status, what to do. Never a key."""
    retryable: bool = False
    status: int | None = None
    retry_after_s: float | None = None


class Reply(Struct, frozen=True):
    """A finished reply. `message.stop_reason` is `error` exactly when `failure` is set."""

    message: AssistantMessage
    failure: Failure | None = None
    faults: Mapping[str, str] = {}
    """Tool calls that must not run, by id, with the reason the model is told (arguments cut off or not JSON)."""


class Delta(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One piece of a reply that is being received; the fields are those of pi's `assistantMessageEvent`."""

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
    """A reply while it is being received: an adapter writes it, the loop reads it, also after an abort.

    Without a watcher nobody is told of pieces; that they come can still be seen by its size.
    """

    __slots__ = ("_blocks", "info", "say", "started_ms", "thinking", "usage", "watcher")

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
        """Tells people why the reply is late."""
        self.thinking = thinking
        self.usage = Usage()
        self._blocks: list[_Block] = []

    def open_text(self) -> int:
        """Begin a text block and return its index."""
        return self._open(_Block("text"), Delta("text_start", len(self._blocks)))

    def open_thinking(self) -> int:
        """Begin a thinking block and return its index."""
        return self._open(_Block("thinking"), Delta("thinking_start", len(self._blocks)))

    def open_call(self, call_id: str, name: str) -> int:
        """Begin a tool call and return its index."""
        start = Delta("toolcall_start", len(self._blocks), id=call_id, tool_name=name)
        return self._open(_Block("toolcall", call_id, name), start)

    def add(self, index: int, piece: str) -> None:
        """Append a piece of text, thinking or serialised arguments to an open block."""
        if not piece:
            return
        block = self._blocks[index]
        block.parts.append(piece)
        if self.watcher is not None:
            self.watcher(Delta(f"{block.kind}_delta", index, delta=piece))  # type: ignore[arg-type]

    def written(self, index: int) -> str:
        """What a block holds so far."""
        return "".join(self._blocks[index].parts)

    def close_text(self, index: int, *, signature: str | UnsetType = UNSET) -> None:
        """End a text block."""
        text = self.written(index)
        self._close(index, TextContent(text, signature), Delta("text_end", index, content=text))

    def close_thinking(self, index: int, *, signature: str | UnsetType = UNSET, redacted: bool = False) -> None:
        """End a thinking block."""
        text = self.written(index)
        done = ThinkingContent(text, signature, redacted)
        self._close(index, done, Delta("thinking_end", index, content=text))

    def close_call(self, index: int, call: ToolCall) -> None:
        """End a tool call with its parsed arguments."""
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
        """The message as it stands. Open text is kept, an open tool call is not: its arguments are incomplete."""
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
        """How many pieces there are: grows while the reply arrives."""
        return sum(1 + len(block.parts) for block in self._blocks)

    @property
    def has_content(self) -> bool:
        """Whether any block was begun."""
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
    """A language model, or something that behaves like one."""

    @property
    def info(self) -> ModelInfo: ...

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Answer the request, writing pieces into the draft.

        MUST NOT raise: a failure is a Reply with stop reason `error`. Cancelling is the only exception that passes;
        what was received until then is in the draft.
        """
        ...

"""What the model sees: messages and their content blocks, in pi's form.

The JSON of every struct here is pi's JSON (camelCase, `role` and `type` tags), so that session files and event streams
need no conversion. This file must not know providers, sessions or tools.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

StopReason: TypeAlias = Literal["pending", "stop", "length", "toolUse", "error", "aborted", "deferred"]
ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


class TextContent(Struct, frozen=True, tag_field="type", tag="text", rename="camel", omit_defaults=True):
    """Plain text."""

    text: str
    text_signature: str | UnsetType = UNSET
    """Opaque provider metadata, replayed to the same provider."""


class ImageContent(Struct, frozen=True, tag_field="type", tag="image", rename="camel"):
    """An image as base64 data."""

    data: str
    mime_type: str


class ThinkingContent(Struct, frozen=True, tag_field="type", tag="thinking", rename="camel", omit_defaults=True):
    """The model's reasoning, with what its provider needs to accept it again."""

    thinking: str
    thinking_signature: str | UnsetType = UNSET
    redacted: bool = False


class ToolCall(Struct, frozen=True, tag_field="type", tag="toolCall", rename="camel", omit_defaults=True):
    """A request of the model to run one tool."""

    id: str
    name: str
    arguments: dict[str, Any]
    thought_signature: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


UserContent: TypeAlias = TextContent | ImageContent
AssistantContent: TypeAlias = TextContent | ThinkingContent | ToolCall


class Cost(Struct, frozen=True, rename="camel"):
    """Money in US dollars, by kind of token."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0
    total: float = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.total + other.total,
        )


class Usage(Struct, frozen=True, rename="camel"):
    """Tokens of one reply, or a sum of them. `input` leaves out what was read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = Cost()
    reasoning: int | UnsetType = UNSET
    """Part of `output` that was thinking, when the provider says so."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.total_tokens + other.total_tokens,
            self.cost + other.cost,
        )


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system", rename="camel", omit_defaults=True):
    """The prompt and the tools at the start, or a later change of them."""

    content: str | list[TextContent]
    timestamp: int
    sections: dict[str, str | None] | UnsetType = UNSET
    tools_added: list[dict[str, Any]] | UnsetType = UNSET
    tools_removed: list[dict[str, Any]] | UnsetType = UNSET


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", rename="camel"):
    """What the user, or the engine on their behalf, says."""

    content: str | list[UserContent]
    timestamp: int


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", rename="camel", omit_defaults=True):
    """One reply of a model."""

    content: list[AssistantContent]
    api: str
    provider: str
    model: str
    usage: Usage
    stop_reason: StopReason
    timestamp: int
    error_message: str | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    response_model: str | UnsetType = UNSET
    raw_stop_reason: str | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET

    @property
    def text(self) -> str:
        """The visible text, blocks joined by newlines."""
        return "\n".join(block.text for block in self.content if type(block) is TextContent)

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls, in source order."""
        return [block for block in self.content if type(block) is ToolCall]


class ToolResultMessage(Struct, frozen=True, tag_field="role", tag="toolResult", rename="camel", omit_defaults=True):
    """What one tool call gave back."""

    tool_call_id: str
    tool_name: str
    content: list[UserContent]
    is_error: bool
    timestamp: int
    details: Any = UNSET
    usage: Usage | UnsetType = UNSET


class BashExecutionMessage(
    Struct, frozen=True, tag_field="role", tag="bashExecution", rename="camel", omit_defaults=True
):
    """A shell command the user ran beside the conversation."""

    command: str
    output: str
    cancelled: bool
    truncated: bool
    timestamp: int
    exit_code: int | UnsetType | None = UNSET
    full_output_path: str | UnsetType = UNSET
    exclude_from_context: bool = False


class CustomMessage(Struct, frozen=True, tag_field="role", tag="custom", rename="camel", omit_defaults=True):
    """Context that a feature or an extension put in; the model sees it as a user message."""

    custom_type: str
    content: str | list[UserContent]
    display: bool
    timestamp: int
    details: Any = UNSET


class BranchSummaryMessage(Struct, frozen=True, tag_field="role", tag="branchSummary", rename="camel"):
    """What happened on a branch that was left."""

    summary: str
    from_id: str | None
    timestamp: int


class CompactionSummaryMessage(Struct, frozen=True, tag_field="role", tag="compactionSummary", rename="camel"):
    """What happened before the point the context was cut at."""

    summary: str
    tokens_before: int
    timestamp: int


Message: TypeAlias = (
    SystemMessage
    | UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CustomMessage
    | BranchSummaryMessage
    | CompactionSummaryMessage
)


def read_content(message: Message) -> str | Sequence[UserContent | AssistantContent]:
    """What a message says: its content, or its summary; nothing for a command of the user's."""
    if isinstance(message, BranchSummaryMessage | CompactionSummaryMessage):
        return message.summary
    return "" if isinstance(message, BashExecutionMessage) else message.content


def has_image(messages: Iterable[Message]) -> bool:
    """Whether any of these shows one."""
    return any(isinstance(block, ImageContent) for message in messages for block in read_content(message))

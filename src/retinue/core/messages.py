"""Messages and their content blocks, in pi's format.

The JSON of every struct is pi's JSON (camelCase, `role` and `type` tags), so that session files and event streams need
no conversion. This file must not know providers, sessions or tools.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from retinue.core.pattern import late_pattern

StopReason: TypeAlias = Literal["pending", "stop", "length", "toolUse", "error", "aborted", "deferred"]
ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


class TextContent(Struct, frozen=True, tag_field="type", tag="text", rename="camel", omit_defaults=True):
    text: str
    text_signature: str | UnsetType = UNSET
    """Opaque provider metadata, sent back to the same provider."""


class ImageContent(Struct, frozen=True, tag_field="type", tag="image", rename="camel"):
    """An image as base64 data."""

    data: str
    mime_type: str


class ThinkingContent(Struct, frozen=True, tag_field="type", tag="thinking", rename="camel", omit_defaults=True):
    """The model's reasoning, with the signature its provider needs to accept it again."""

    thinking: str
    thinking_signature: str | UnsetType = UNSET
    redacted: bool = False


class ToolCall(Struct, frozen=True, tag_field="type", tag="toolCall", rename="camel", omit_defaults=True):
    id: str
    name: str
    arguments: dict[str, Any]
    thought_signature: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


_TAG = late_pattern(r"<active_agent [^<>]*/>\s*\Z")
UserContent: TypeAlias = TextContent | ImageContent
AssistantContent: TypeAlias = TextContent | ThinkingContent | ToolCall


class Cost(Struct, frozen=True, rename="camel"):
    """US dollars by kind of token."""

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
    """Tokens of one reply, or a sum. `input` excludes tokens read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = Cost()
    reasoning: int | UnsetType = UNSET
    """The part of `output` that was thinking, if the provider reports it."""

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
    """The system prompt and tools at the start, or a later change to them."""

    content: str | list[TextContent]
    timestamp: int
    sections: dict[str, str | None] | UnsetType = UNSET
    tools_added: list[dict[str, Any]] | UnsetType = UNSET
    tools_removed: list[dict[str, Any]] | UnsetType = UNSET


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", rename="camel"):
    """A message from the user, or from the engine on their behalf."""

    content: str | list[UserContent]
    timestamp: int

    @property
    def shown(self) -> str | list[UserContent]:
        """The content for people: without the element that names the agent to programs."""
        if isinstance(self.content, str):
            return _cut_tag(self.content)
        last = self.content[-1] if self.content else None
        if not isinstance(last, TextContent) or (text := _cut_tag(last.text)) == last.text:
            return self.content
        # The task of a run in another process is one text.
        return [*self.content[:-1], *([TextContent(text)] if text else [])]


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", rename="camel", omit_defaults=True):
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
        return join_text(self.content)

    @property
    def calls(self) -> list[ToolCall]:
        return [block for block in self.content if type(block) is ToolCall]


class ToolResultMessage(Struct, frozen=True, tag_field="role", tag="toolResult", rename="camel", omit_defaults=True):
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
    """A shell command that the user ran outside the conversation."""

    command: str
    output: str
    cancelled: bool
    truncated: bool
    timestamp: int
    exit_code: int | UnsetType | None = UNSET
    full_output_path: str | UnsetType = UNSET
    exclude_from_context: bool = False


class CustomMessage(Struct, frozen=True, tag_field="role", tag="custom", rename="camel", omit_defaults=True):
    """Context added by a feature or an extension; the model sees it as a user message."""

    custom_type: str
    content: str | list[UserContent]
    display: bool
    timestamp: int
    details: Any = UNSET


class BranchSummaryMessage(Struct, frozen=True, tag_field="role", tag="branchSummary", rename="camel"):
    """Summary of a branch that was left."""

    summary: str
    from_id: str | None
    timestamp: int


class CompactionSummaryMessage(Struct, frozen=True, tag_field="role", tag="compactionSummary", rename="camel"):
    """Summary of the messages before the point where the context was compacted."""

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
    """The content or summary of a message; empty for a shell command of the user."""
    if isinstance(message, BranchSummaryMessage | CompactionSummaryMessage):
        return message.summary
    return "" if isinstance(message, BashExecutionMessage) else message.content


def join_text(content: str | Iterable[object]) -> str:
    """Return the text of a message, its blocks joined by newlines; images are left out."""
    return content if isinstance(content, str) else "\n".join(b.text for b in content if type(b) is TextContent)


def has_image(messages: Iterable[Message]) -> bool:
    contents = (read_content(message) for message in messages)
    # Text is not walked through: it would be looked at letter by letter.
    return any(isinstance(block, ImageContent) for content in contents if type(content) is not str for block in content)


def _cut_tag(text: str) -> str:
    found = _TAG.search(text, max(0, text.rfind("<active_agent ")))
    return text[: found.start()].rstrip() if found else text


def escape_element(text: str) -> str:
    """Escape a text so that it cannot close the XML element it stands in."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

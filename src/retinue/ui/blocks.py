"""The blocks of a conversation on screen, one class per kind. Data only.

A block's version grows with every change, so that views need not compare contents. Texts are not escaped; widgets do
that.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Tone = Literal["info", "warning", "error"]


@dataclass(slots=True, kw_only=True)
class Block:
    version: int = 0
    is_hidden: bool = False

    def touch(self) -> None:
        """Record a change."""
        self.version += 1


@dataclass(slots=True)
class UserBlock(Block):
    """A message from the user, or sent on the user's behalf."""

    text: str
    images: int = 0


@dataclass(slots=True)
class ReplyBlock(Block):
    """A reply of the model without its tool calls; grows while it is streamed."""

    text: str = ""
    thinking: str = ""
    is_live: bool = False
    model: str = ""
    error: str = ""
    is_aborted: bool = False


@dataclass(slots=True)
class ToolBlock(Block):
    """A tool call and its result."""

    call_id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    status: Literal["waiting", "running", "done", "failed"] = "waiting"
    output: str = ""
    images: int = 0
    details: Any = None
    duration_ms: int | None = None
    started_ms: int = 0
    changes: str = ""
    """Which hooks changed the arguments or the result."""


@dataclass(slots=True)
class NoteBlock(Block):
    """An informational message, warning or error for the user."""

    text: str
    tone: Tone = "info"


@dataclass(slots=True)
class ReportBlock(Block):
    """Finished runs, as their parent was notified of them."""

    runs: list[dict[str, Any]]
    text: str = ""


@dataclass(slots=True)
class CommandBlock(Block):
    """A shell command that the user ran."""

    command: str
    output: str = ""
    exit_code: int | None = None
    is_private: bool = False
    """The model does not see it."""
    is_live: bool = False
    duration_ms: float | None = None
    """Unknown after a resume."""


@dataclass(slots=True)
class SummaryBlock(Block):
    """A summary that replaces the conversation before it."""

    summary: str
    tokens_before: int = 0
    kind: Literal["compaction", "branch"] = "compaction"

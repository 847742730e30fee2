"""What a conversation on the screen is made of: one class for each kind of thing that is shown. Data only.

A block's version grows whenever it changes, so that whoever shows it can tell without comparing. Texts are as they
came; widgets make them safe for a terminal.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Tone = Literal["info", "warning", "error"]


@dataclass(slots=True, kw_only=True)
class Block:
    """Anything in a conversation."""

    version: int = 0

    def touch(self) -> None:
        """Note a change."""
        self.version += 1


@dataclass(slots=True)
class UserBlock(Block):
    """What the user, or somebody on their behalf, said."""

    text: str
    images: int = 0


@dataclass(slots=True)
class ReplyBlock(Block):
    """One reply of the model without its calls; grows while it is live."""

    text: str = ""
    thinking: str = ""
    is_live: bool = False
    model: str = ""
    error: str = ""
    is_aborted: bool = False


@dataclass(slots=True)
class ToolBlock(Block):
    """One tool call and what came of it."""

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
    """Which hooks have changed what of it."""


@dataclass(slots=True)
class NoteBlock(Block):
    """Something a person should know that nobody said."""

    text: str
    tone: Tone = "info"


@dataclass(slots=True)
class ReportBlock(Block):
    """Runs have ended: what their parent was told, as data for a box."""

    runs: list[dict[str, Any]]
    text: str = ""


@dataclass(slots=True)
class CommandBlock(Block):
    """A command that the user ran beside the conversation."""

    command: str
    output: str = ""
    exit_code: int | None = None
    is_private: bool = False
    """The model does not see it."""
    is_live: bool = False


@dataclass(slots=True)
class SummaryBlock(Block):
    """What stands for the conversation before it."""

    summary: str
    tokens_before: int = 0
    kind: Literal["compaction", "branch"] = "compaction"

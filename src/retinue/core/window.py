"""Messages between a session process and its windows, one JSON object per line, and the record of a session process.

A window is a browser page or a terminal that shows the session. Must not know how either is drawn.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from retinue.core.run import Question

MAX_LINE = 1024 * 1024
"""Maximum length of a message in bytes."""
MAX_OUTPUT = 32 * 1024
"""Maximum characters of one `Output`."""
MOST_CELLS = 999
Cells: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_CELLS)]
Words: TypeAlias = Annotated[str, Meta(max_length=100_000)]
State: TypeAlias = Literal["starting", "running", "waiting", "finished", "lost"]


class Open(Struct, frozen=True, tag="open"):
    """Become a window."""

    kind: Literal["browser", "terminal"]
    width: Cells
    height: Cells


class Keys(Struct, frozen=True, tag="keys"):
    """What was typed, as a terminal sends it."""

    text: Annotated[str, Meta(max_length=MAX_LINE)]


class Resize(Struct, frozen=True, tag="resize"):
    width: Cells
    height: Cells


class Focus(Struct, frozen=True, tag="focus"):
    is_focused: bool


class Report(Struct, frozen=True, tag="report"):
    """Ask for the record."""


class Say(Struct, frozen=True, tag="say"):
    """Send a text to the agent, as if it had been typed into the editor."""

    text: Words


class Reply(Struct, frozen=True, tag="reply"):
    """Answer a question."""

    question_id: str
    answer: Words


class Close(Struct, frozen=True, tag="close"):
    """Close the session; it can be resumed."""


class Output(Struct, frozen=True, tag="output"):
    """What a terminal has to show."""

    text: str


class Title(Struct, frozen=True, tag="title"):
    """What the session is about."""

    text: str


class Parted(Struct, frozen=True, tag="parted"):
    """The window is closed: detached from a session that continues, or the session has ended."""

    is_ended: bool
    text: str = ""
    """The last answer, or the error that ended the session."""
    hint: str = ""
    """How to come back."""
    status: int = 0


class Refused(Struct, frozen=True, tag="refused"):
    """A request could not be fulfilled."""

    text: str


class ProcessRecord(Struct, frozen=True, tag="record", rename="camel"):
    """What a session process says about itself."""

    id: str
    pid: int
    state: State
    """`waiting`: for an answer; `finished`: no work is left, or the process has ended; `lost`: it was killed."""
    cwd: str
    started_ms: int
    changed_ms: int
    """When the state changed."""
    is_open: bool = True
    """Whether the process runs."""
    title: str = ""
    session: str = ""
    file: str = ""
    """The session file; empty if the session is not saved."""
    model: str = ""
    cost: float = 0.0
    agents: int = 0
    """Working subagents."""
    windows: int = 0
    questions: tuple[Question, ...] = ()
    note: str = ""
    """What the user should know, such as why it ended."""


ToProcess: TypeAlias = Open | Keys | Resize | Focus | Report | Say | Reply | Close
ToWindow: TypeAlias = Output | Title | Parted | Refused | ProcessRecord

read_request = msgspec.json.Decoder(ToProcess).decode
read_answer = msgspec.json.Decoder(ToWindow).decode
read_record = msgspec.json.Decoder(ProcessRecord).decode
"""These raise msgspec.MsgspecError, or RecursionError for deeply nested input."""


def write_line(message: ToProcess | ToWindow) -> bytes:
    return msgspec.json.encode(message) + b"\n"

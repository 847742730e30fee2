"""What the wire formats share: the reply to encode, the events it becomes, and what is read from a request.

This file must not know sockets or faults.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import orjson
from msgspec import Struct

from retinue.core.model import FailureKind
from retinue.models.script import ScriptContext, ScriptUsage, Stop

CREATED_S = 1_700_000_000
"""Time of creation in every reply: fixed, so that a reply is encoded once."""

Mark: TypeAlias = Literal["start", "text", "args", "call_end", "stop", "last", "other"]
"""What an event is for a fault that looks for its place; `stop` and `last` are the terminal events."""


class SpokenBlock(Struct, frozen=True):
    """A block with its defaults filled in; `text` holds a call's arguments as JSON."""

    kind: Literal["text", "thinking", "call"]
    text: str
    name: str = ""
    id: str = ""
    signature: str = ""
    has_own_id: bool = False


class Spoken(Struct, frozen=True):
    """A reply with every choice made, ready to encode."""

    position: int
    model: str
    blocks: tuple[SpokenBlock, ...]
    usage: ScriptUsage | None
    stop: Stop
    raw_stop: str | None = None
    chunk_chars: int = 0
    include_usage: bool = True
    """Whether a stream ends with the usage, where the API leaves that to the client."""


class WireEvent(Struct, frozen=True):
    """One event of a stream, as bytes."""

    data: bytes
    mark: Mark = "other"
    is_piece: bool = False
    """Whether it carries content, so that `chunk_ms` passes before it."""


class WireRequest(Struct, frozen=True):
    """What a request says, as far as the server cares."""

    model: str
    stream: bool
    position: int
    exchange: ScriptContext | None
    conversation: object
    """Equal for requests of the same conversation, as well as can be seen without state."""
    include_usage: bool = True


class WireFormat(Protocol):
    """One API."""

    def parse_request(self, body: bytes, *, full: bool) -> WireRequest:
        """Read a request; `full` asks for the texts that a script matches on."""
        ...

    def render_stream(self, spoken: Spoken) -> list[WireEvent]:
        """The reply as events."""
        ...

    def render_plain(self, spoken: Spoken) -> bytes:
        """The reply as one body."""
        ...

    def render_error(self, kind: FailureKind, status: int, message: str) -> bytes:
        """The body of an error response."""
        ...

    def render_error_events(self, kind: FailureKind, status: int, message: str) -> list[bytes]:
        """An error inside a stream."""
        ...

    def render_text_piece(self, spoken: Spoken, piece: str) -> bytes:
        """A text event that continues the first text of the reply."""
        ...

    def request_id_header(self) -> bytes:
        """The name of the header that carries the request's id."""
        ...


def split_pieces(text: str, chunk_chars: int) -> list[str]:
    """Cut a text into pieces; a text is never cut into none."""
    if chunk_chars <= 0 or len(text) <= chunk_chars:
        return [text]
    return [text[at : at + chunk_chars] for at in range(0, len(text), chunk_chars)]


def to_sse(payload: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    data = b"data: " + orjson.dumps(payload) + b"\n\n"
    return b"event: " + name.encode() + b"\n" + data if name else data


def to_text(content: Any) -> str:
    """The text in a message's content, whichever way an API writes it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""

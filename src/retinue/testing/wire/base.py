"""What the wire formats share: the reply to encode, its events, and the parsed request.

Must not know sockets or faults.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import orjson
from msgspec import Struct

from retinue.core.model import FailureKind
from retinue.models.script import ScriptContext, ScriptUsage, Stop

CREATED_S = 1_700_000_000
"""The creation time in every reply; fixed, so that a reply is encoded only once."""

Mark: TypeAlias = Literal["start", "text", "args", "call_end", "stop", "last", "other"]
"""The role of an event, used to find the place of a fault; `stop` and `last` are terminal events."""


class SpokenBlock(Struct, frozen=True):
    """A block with defaults filled in; `text` holds a call's arguments as JSON."""

    kind: Literal["text", "thinking", "call"]
    text: str
    name: str = ""
    id: str = ""
    signature: str = ""
    has_own_id: bool = False


class Spoken(Struct, frozen=True):
    """A complete reply, ready to encode."""

    position: int
    model: str
    blocks: tuple[SpokenBlock, ...]
    usage: ScriptUsage | None
    stop: Stop
    raw_stop: str | None = None
    chunk_chars: int = 0
    include_usage: bool = True
    """Whether a stream ends with the usage, if the API leaves that to the client."""


class WireEvent(Struct, frozen=True):
    data: bytes
    mark: Mark = "other"
    is_piece: bool = False
    """Whether it carries content, so that `chunk_ms` passes before it."""


class WireRequest(Struct, frozen=True):
    """The parts of a request that the server needs."""

    model: str
    stream: bool
    position: int
    exchange: ScriptContext | None
    conversation: object
    """Equal for requests of the same conversation, as far as can be told without state."""
    include_usage: bool = True


class WireFormat(Protocol):
    """The format of one model API."""

    request_id: bytes
    """The name of the header with the request id."""

    def parse_request(self, body: bytes, *, full: bool) -> WireRequest:
        """Parse a request; `full` includes the texts that a script matches on."""
        ...

    def render_stream(self, spoken: Spoken) -> list[WireEvent]: ...

    def render_plain(self, spoken: Spoken) -> bytes: ...

    def render_error(self, kind: FailureKind, status: int, message: str) -> bytes: ...

    def render_error_events(self, kind: FailureKind, status: int, message: str) -> list[bytes]: ...

    def render_text_piece(self, spoken: Spoken, piece: str) -> bytes:
        """Return a text event that continues the first text of the reply."""
        ...


def split_pieces(text: str, chunk_chars: int) -> list[str]:
    """Split a text into pieces; an empty text gives one piece."""
    if chunk_chars <= 0 or len(text) <= chunk_chars:
        return [text]
    return [text[at : at + chunk_chars] for at in range(0, len(text), chunk_chars)]


def to_sse(payload: Mapping[str, Any], name: str = "") -> bytes:
    data = b"data: " + orjson.dumps(payload) + b"\n\n"
    return b"event: " + name.encode() + b"\n" + data if name else data


def to_text(content: Any) -> str:
    """Return the text of a message's content in any API's form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""

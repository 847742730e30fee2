"""The wire form of a growing conversation: each message is converted once per run, for any number of turns.

Kept in `ModelRequest.memo`. Also repairs what no API accepts: calls without a result, results without a call. This file
must not know a wire format; the adapter does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from retinue.core.collector import paused_collector
from retinue.core.messages import ImageContent, Message, TextContent, ToolResultMessage
from retinue.models.convert import NO_RESULT

if TYPE_CHECKING:
    from retinue.models.adapter import Adapter

_MANY_MESSAGES = 1000


class WireMessage(Struct, frozen=True):
    role: Literal["skip", "user", "assistant", "result"]
    wire: bytes = b""
    extra: bytes = b""
    """Sent after the group of results (images, if the API does not allow them in a result)."""
    calls: tuple[tuple[str, str], ...] = ()
    """Id and name of each call in an assistant message."""
    call_id: str = ""
    """For a result: the id of its call."""


SKIP = WireMessage("skip")


class WireConversation:
    """Messages in wire form; grows with the run."""

    def __init__(self, form: "Adapter") -> None:
        self._form = form
        self._marks: tuple[int, ...] = ()
        self._shared = 0
        self.head_key: Any = None
        self.head = b""
        """The request without the messages, as the adapter built it for `head_key`."""
        self._reset()

    def render(
        self, messages: Sequence[Message], *, marks: tuple[int, ...] = (), shared: int = 0
    ) -> list[bytes | bytearray]:
        """The messages as pieces of a JSON list, to be joined; `marks` are the numbers of messages before cache marks.

        The size of the first `shared` messages is then known as `shared_chars`.
        """
        inner = tuple(mark for mark in marks if mark < len(messages))
        if inner != self._marks:
            self._reset()
        self._marks, self._shared = inner, shared
        known = len(self._seen)
        # List comparison checks identity first, in C: microseconds for hundreds of messages.
        if known > len(messages) or (messages[:known] if type(messages) is list else [*messages[:known]]) != self._seen:
            self._reset()
            known = 0
        if len(messages) - known > _MANY_MESSAGES:
            with paused_collector():
                self._add_all(messages[known:])
        else:
            self._add_all(messages[known:])
        tail = self._write_group(mark=len(messages) in marks)
        if self._open and self._open[0][1].role == "assistant" and self._open[0][1].calls:
            tail = _join(tail, self._form.join_results(self._invent(self._open[0][1].calls)))
        return [self._settled, b",", tail] if self._settled and tail else [self._settled, tail]

    def _reset(self) -> None:
        self._seen: list[Message] = []
        self._settled = bytearray()
        self._open: list[tuple[Message, WireMessage]] = []
        self._last = 0
        self._pending: tuple[tuple[str, str], ...] = ()
        self._after_results = False
        self.shared_chars = 0
        self.image_chars = 0
        """Characters of image data in the wire form, which do not indicate tokens."""

    def _add_all(self, messages: Sequence[Message]) -> None:
        to_piece = self._form.to_piece
        for message in messages:
            self._seen.append(message)
            piece = to_piece(message)
            if piece.role == "skip":
                continue
            # Before the images of this message are counted, which is not part of the group that ends.
            if not (piece.role == "result" and self._open and self._open[0][1].role == "result"):
                self._settle()
            content = getattr(message, "content", None)
            if type(content) is list:
                for block in content:
                    if type(block) is ImageContent:
                        self.image_chars += len(block.data)
            self._open.append((message, piece))
            self._last = len(self._seen)

    def _settle(self) -> None:
        """Close the open group, which is complete and not the last."""
        if not self._open:
            return
        ended = range(self._last, len(self._seen))
        """Numbers of messages with which this group ends: messages that are not sent may follow it."""
        wire = self._write_group(mark=any(mark in ended for mark in self._marks))
        if self._settled and wire:
            self._settled += b","
        self._settled += wire
        if self._shared in ended:
            self.shared_chars = len(self._settled) - self.image_chars
        first = self._open[0][1]
        self._pending = first.calls
        self._after_results = first.role == "result"
        self._open = []

    def _write_group(self, *, mark: bool) -> bytes:
        if not self._open:
            return b""
        message, piece = self._open[-1]
        last = self._form.mark_last(message, piece) if mark else piece
        if piece.role == "result":
            return self._write_results([*(piece for _, piece in self._open[:-1]), last])
        wire = last.wire
        if self._pending:
            wire = _join(self._form.join_results(self._invent(self._pending)), wire)
        elif piece.role == "user" and self._after_results:
            wire = _join(self._form.bridge, wire)
        return wire

    def _write_results(self, results: list[WireMessage]) -> bytes:
        wanted = dict(self._pending)
        kept = [result for result in results if wanted.pop(result.call_id, None) is not None]
        kept += self._invent(tuple(wanted.items()))
        return self._form.join_results(kept) if kept else b""

    def _invent(self, calls: tuple[tuple[str, str], ...]) -> list[WireMessage]:
        return [
            self._form.to_piece(ToolResultMessage(call_id, name, [TextContent(NO_RESULT)], is_error=True, timestamp=0))
            for call_id, name in calls
        ]


def _join(left: bytes, right: bytes) -> bytes:
    return left + b"," + right if left and right else left or right

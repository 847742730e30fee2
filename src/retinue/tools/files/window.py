"""Reads a range of lines from a file of any size in bounded memory. Blocks."""

import codecs
import os
from collections.abc import Callable

from msgspec import Struct

from retinue.tools.truncate import MAX_BYTES, MAX_LINES

_CHUNK = 1024 * 1024
# In larger files, not all lines are counted.
COUNTED_BYTES = 128 * 1024 * 1024


class Window(Struct, frozen=True):
    """A range of lines as raw bytes, with its position in the file."""

    data: bytes
    """At most slightly more than a model is shown."""
    lines_before: int
    """Lines before the range; if the file ends earlier, all its lines."""
    found: bool
    """Whether the file has the first line of the range."""
    total_lines: int | None
    """None if not counted."""
    first_line_bytes: int
    """Length of the first line of the range, or of the part of it that was read."""


def read_window(handle: int, first: int, limit: int | None, is_stopped: Callable[[], bool]) -> Window:
    """Read from line `first` (counted from 1) up to the limits. `is_stopped` is polled and ends the reading."""
    wanted = min(MAX_LINES, limit or MAX_LINES) + 1
    reader = _LineReader(handle, is_stopped)
    reader.skip_lines(first - 1)
    before = reader.lines
    data = reader.take_lines(wanted)
    found = bool(data)
    first_line = data.find(b"\n")
    if first_line < 0 and len(data) > MAX_BYTES:
        first_line = reader.measure_line(len(data))
    total = reader.count_rest()
    return Window(data, before, found, total, first_line if first_line >= 0 else len(data))


class _LineReader:
    """Reads a file once and counts its lines."""

    def __init__(self, handle: int, is_stopped: Callable[[], bool]) -> None:
        self._handle = handle
        self._is_stopped = is_stopped
        self._rest = b""
        self._seen = 0
        self._ended = False
        self._last = b"\n"
        self.lines = 0
        """Newlines passed, plus one for a last line without a newline."""

    def _fill(self) -> bool:
        if self._rest:
            return True
        if self._ended or self._is_stopped():
            return False
        try:
            self._rest = os.read(self._handle, _CHUNK)
        except BlockingIOError:
            self._rest = b""
        self._seen += len(self._rest)
        if not self._rest:
            self._ended = True
            if self._last != b"\n":
                self.lines += 1
                self._last = b"\n"
        return bool(self._rest)

    def _pass(self, count: int) -> bytes:
        piece, self._rest = self._rest[:count], self._rest[count:]
        self._last = piece[-1:] or self._last
        self.lines += piece.count(b"\n")
        return piece

    def skip_lines(self, count: int) -> None:
        while self.lines < count and self._fill():
            missing = count - self.lines
            if self._rest.count(b"\n") < missing:
                self._pass(len(self._rest))
                continue
            at = -1
            for _ in range(missing):
                at = self._rest.find(b"\n", at + 1)
            self._pass(at + 1)

    def take_lines(self, count: int) -> bytes:
        """Return up to `count` lines, but no more than is ever shown."""
        taken = bytearray()
        end = self.lines + count
        # One byte more than fits, so that the truncation is noticed; four for a character that may be split.
        room = MAX_BYTES + 5
        while self.lines < end and len(taken) < room and self._fill():
            at = -1
            for _ in range(end - self.lines):
                following = self._rest.find(b"\n", at + 1, room)
                if following < 0:
                    at = min(len(self._rest), room - len(taken)) - 1
                    break
                at = following
            taken += self._pass(min(at + 1, room - len(taken)))
        return bytes(taken)

    def measure_line(self, begun: int) -> int:
        """Return the length of the started line; it stops counting at COUNTED_BYTES."""
        length = begun
        while self._seen < COUNTED_BYTES and self._fill():
            end = self._rest.find(b"\n")
            if end >= 0:
                return length + end
            length += len(self._pass(len(self._rest)))
        return length

    def count_rest(self) -> int | None:
        """Return the number of lines of the file, or None if it is too large to count."""
        while self._fill():
            if self._seen > COUNTED_BYTES:
                return None
            self._pass(len(self._rest))
        return self.lines if self._ended else None


def decode_text(data: bytes, *, complete: bool) -> tuple[str, int]:
    """Decode text and count the invalid UTF-8 bytes. If not `complete`, a character cut off at the end is allowed."""
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, complete)
        return text, text.count("\ufffd") - data.count("\ufffd".encode())


def decode_wide(data: bytes) -> str | None:
    """Decode UTF-16 text; None without a byte order mark or if it is invalid."""
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError:
        return None

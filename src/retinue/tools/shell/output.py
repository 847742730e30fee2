"""Keeps the output of a command: the end in memory, all of it on disk up to a cap. Builds its environment."""

import codecs
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from retinue.core.redaction import StreamRedactor
from retinue.tools.truncate import MAX_BYTES, MAX_LINES, SPILL_CAP, Truncation, truncate_tail

_TAIL_KEPT = 2 * MAX_BYTES
_CHECKED_BYTES = 8 * 1024 * 1024
_COPY_SIZE = 1024 * 1024
_GAP_ROOM = 256
_WORD = 4096


class OutputFile:
    """The full output in a file of mode 0600; beyond the cap, its head and tail with a note about the gap.

    Secrets are removed from everything that has a name on disk: from the head as it arrives, from the tail when it is
    appended.
    """

    def __init__(
        self, folder: Path | None, *, cap: int = SPILL_CAP, redact: Callable[[str], str] | None = None
    ) -> None:
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._redact = redact
        self._stream_redactor = None if redact is None else StreamRedactor(redact)
        self._head_room = cap // 2 - _GAP_ROOM
        self._ring_size = cap // 2
        self._file = -1
        self._ring = -1
        self._ring_at = 0
        self._overflow = 0
        self.path = ""
        self.error = ""

    @property
    def dropped(self) -> int:
        """Bytes between head and tail that were not kept."""
        return max(0, self._overflow - self._ring_size)

    def write(self, data: bytes) -> None:
        """Store a piece of output. A disk error ends the storing, not the command."""
        if self.error:
            return
        try:
            if self._file < 0:
                self._file = self._create()
            if self._head_room and self._stream_redactor is not None:
                data = self._stream_redactor.feed(data)
            self._keep(data)
        except OSError as error:
            self.error = error.strerror or str(error)

    def finish(self) -> None:
        """Append the tail to the head. Blocks while up to half the cap is copied."""
        try:
            if self._stream_redactor is not None and not self.error:
                self._keep(self._stream_redactor.finish())
            if self._ring >= 0 and not self.error:
                self._join()
        except OSError as error:
            self.error = error.strerror or str(error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files; what was written stays."""
        for handle in (self._file, self._ring):
            if handle >= 0:
                with suppress(OSError):
                    os.close(handle)
        self._file = self._ring = -1

    def _keep(self, data: bytes) -> None:
        head, tail = data[: self._head_room], data[self._head_room :]
        if head:
            _write_all(self._file, head)
            self._head_room -= len(head)
        if tail or (self._ring < 0 and not self._head_room):
            # What the stream_redactor still holds comes before the data that is not filtered until the end.
            self._write_ring(tail if self._stream_redactor is None else tail + self._stream_redactor.give_back())

    def _create(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = str(self._folder / f"retinue-bash-{os.urandom(8).hex()}.log")
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _write_ring(self, data: bytes) -> None:
        if self._ring < 0:
            name = f"{self.path}.tail"
            self._ring = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            # Unlinked at once, so that a killed process leaves no second file behind.
            os.unlink(name)
        self._overflow += len(data)
        view = memoryview(data)[-self._ring_size :]
        while view:
            count = os.pwrite(self._ring, view[: self._ring_size - self._ring_at], self._ring_at)
            self._ring_at = (self._ring_at + count) % self._ring_size
            view = view[count:]

    def _join(self) -> None:
        pieces = [(0, min(self._overflow, self._ring_size))]
        if self.dropped:
            _write_all(self._file, f"\n[... {self.dropped} bytes were not kept here ...]\n".encode())
            pieces = [(self._ring_at, self._ring_size), (0, self._ring_at)]
        stream_redactor = StreamRedactor(self._redact or str)
        is_fragment = self._redact is not None and self.dropped > 0
        for start, end in pieces:
            while start < end:
                data = os.pread(self._ring, min(_COPY_SIZE, end - start), start)
                start += len(data)
                # The tail may start within a secret, so its first word is dropped.
                _write_all(self._file, stream_redactor.feed(_skip_word(data) if is_fragment else data))
                is_fragment = False
        _write_all(self._file, stream_redactor.finish())


class Output:
    """The output of one command, in part."""

    def __init__(self, spill: OutputFile) -> None:
        self.spill = spill
        self.total_bytes = 0
        self.invalid = 0
        """Bytes that are not text, counted in the first 8 MB."""
        self._newlines = 0
        self.last_line_bytes = 0
        """The length of the current line."""
        self._tail = bytearray()
        self._cut = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> None:
        spilling = self.is_long
        if self.total_bytes < _CHECKED_BYTES:
            self._count_invalid(data)
        self.total_bytes += len(data)
        newlines = data.count(b"\n")
        if newlines:
            self._newlines += newlines
            self.last_line_bytes = len(data) - data.rfind(b"\n") - 1
        else:
            self.last_line_bytes += len(data)
        if self.is_long:
            # Until now all output is in the tail, so the file starts with it.
            self.spill.write(data if spilling else bytes(self._tail) + data)
        self._tail += data[-2 * _TAIL_KEPT :]
        if len(self._tail) > 2 * _TAIL_KEPT:
            del self._tail[:-_TAIL_KEPT]
            self._cut = True

    def finish(self) -> None:
        """End the decoding; an incomplete last character counts as invalid."""
        if self.total_bytes <= _CHECKED_BYTES:
            self.invalid += len(self._decoder.decode(b"", True))

    @property
    def total_lines(self) -> int:
        return self._newlines + (1 if self.last_line_bytes else 0)

    @property
    def is_long(self) -> bool:
        """Whether the output is longer than a model is shown."""
        return self.total_bytes > MAX_BYTES or self.total_lines > MAX_LINES

    def view(self, *, final: bool = True) -> Truncation:
        """Return the end of the output as text, within the limits."""
        raw = bytes(self._tail)
        if self._cut:
            # The first line is a fragment, unless it is the only one.
            newline = raw.find(b"\n", 0, len(raw) - 1)
            raw = raw[newline + 1 :] if newline >= 0 else _skip_continuation(raw)
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final).replace("\0", "\ufffd")
        shown = truncate_tail(text)
        reason = shown.truncated_by or (
            ("bytes" if self.total_bytes > MAX_BYTES else "lines") if self.is_long else None
        )
        return Truncation(
            shown.content,
            reason,
            self.total_lines,
            self.total_bytes,
            shown.output_lines,
            shown.output_bytes,
            last_line_partial=shown.last_line_partial,
        )

    def _count_invalid(self, data: bytes) -> None:
        if not (data.isascii() and not self._decoder.getstate()[0]):
            text = self._decoder.decode(data)
            # The replacement character may also have been printed itself.
            self.invalid += max(0, text.count("\ufffd") - data.count("\ufffd".encode()))
        self.invalid += data.count(b"\0")


def _skip_word(data: bytes) -> bytes:
    end = next((at for at, byte in enumerate(data[:_WORD]) if byte in b" \n\t\r"), min(len(data), _WORD))
    return data[end:]


def _skip_continuation(raw: bytes) -> bytes:
    start = 0
    while start < min(4, len(raw)) and raw[start] & 0xC0 == 0x80:
        start += 1
    return raw[start:]


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]

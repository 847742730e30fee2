"""Splits the output of a child process into JSON records, with limits on everything.

Knows which kinds of records to keep, not what they mean.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from retinue.core.pattern import late_pattern

MAX_STDOUT = 8 * 1024 * 1024
MAX_STDERR = 1024 * 1024
MAX_RECORDS = 10_000
MAX_PIECES = 100_000
PIECES = frozenset({"message_update", "tool_execution_update", "message_start", "queue_update"})
"""Record types that are shown but not kept."""

_STDOUT = f"stdout hard limit ({MAX_STDOUT} bytes)"
_STDERR = f"stderr hard limit ({MAX_STDERR} bytes)"
_RECORDS = f"persisted JSONL line hard limit ({MAX_RECORDS} lines)"
_PIECES = f"transient JSONL line hard limit ({MAX_PIECES} lines)"
# Reading the type alone is enough for most lines; programs write it first.
_KIND = late_pattern(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')


class Stream:
    """Standard output and standard error of one process."""

    def __init__(self, on_record: Callable[[dict[str, Any]], None], on_piece: Callable[[str, bytes], None]) -> None:
        """`on_piece` receives type and line of records that are not kept. Neither callback may raise."""
        self._on_record = on_record
        self._on_piece = on_piece
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._kept = 0
        self._records = 0
        self._pieces = 0
        self._plain = bytearray()
        self._errors = bytearray()
        self.has_objects = False
        self.exceeded = ""
        """The limit that was exceeded, or empty."""

    def feed(self, data: bytes) -> bool:
        """Process a part of standard output; True if a limit is exceeded."""
        *lines, rest = data.split(b"\n")
        if lines:
            self._rest.append(lines[0])
            lines[0] = b"".join(self._rest)
            self._rest, self._rest_size = [], 0
        for line in lines:
            self._take(line)
            if self.exceeded:
                return True
        self._rest.append(rest)
        self._rest_size += len(rest)
        if self._rest_size + self._kept > MAX_STDOUT:
            self.exceeded = _STDOUT
        return bool(self.exceeded)

    def feed_error(self, data: bytes) -> bool:
        """Process a part of standard error; True if a limit is exceeded."""
        self._errors += data
        if len(self._errors) > MAX_STDERR:
            self.exceeded = self.exceeded or _STDERR
        return bool(self.exceeded)

    def close(self) -> None:
        """Process a last line without a line break."""
        if not self.exceeded:
            self._take(b"".join(self._rest))
        self._rest = []

    @property
    def plain(self) -> str:
        """Output that is not JSON; kept only until the first JSON object."""
        return self._plain.decode(errors="replace").strip()

    @property
    def errors(self) -> str:
        return self._errors.decode(errors="replace").strip()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        known = _KIND.match(line)
        if known is not None and (kind := known[1].decode()) in PIECES:
            self._take_piece(kind, line)
            return
        record = _decode(line)
        if isinstance(record, dict) and str(record.get("type")) in PIECES:
            self._take_piece(str(record["type"]), line)
            return
        self._kept += len(line) + 1
        self._records += record is not None
        if self._kept > MAX_STDOUT or self._records > MAX_RECORDS:
            self.exceeded = _STDOUT if self._kept > MAX_STDOUT else _RECORDS
        elif isinstance(record, dict):
            self.has_objects = True
            self._plain.clear()
            self._on_record(record)
        elif not self.has_objects:
            self._plain += line + b"\n"

    def _take_piece(self, kind: str, line: bytes) -> None:
        self._pieces += 1
        self.has_objects = True
        if self._pieces > MAX_PIECES:
            self.exceeded = _PIECES
        else:
            self._on_piece(kind, line)


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

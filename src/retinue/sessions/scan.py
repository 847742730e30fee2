"""Read a session file once: the position of each entry, the links between entries, and damage.

Changes nothing and decodes only the links. Must not know messages.
"""

from array import array
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET, Struct, field

from retinue.sessions.entry import VERSION, EntryHead, decode_head, decode_object, try_decode_head

CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line is skipped: neither pi nor we write one."""

_BOM: Final = b"\xef\xbb\xbf"
_LINE_START: Final = b'{"type":"'


class Damage(Struct):
    """What is wrong with a session file; false if nothing is."""

    torn_bytes: int = 0
    bad_lines: int = 0
    nul_bytes: int = 0
    long_lines: int = 0
    orphans: int = 0
    missing_header: bool = False
    saved_to: str = ""
    """The side file that the torn end was moved to."""

    def __bool__(self) -> bool:
        return bool(
            self.torn_bytes
            or self.bad_lines
            or self.nul_bytes
            or self.long_lines
            or self.orphans
            or self.missing_header
        )

    def __str__(self) -> str:
        """Render one line for the user; empty if nothing is wrong."""
        parts = []
        if self.missing_header:
            parts.append("no header")
        if self.torn_bytes:
            kept = f" kept in {self.saved_to}" if self.saved_to else ""
            parts.append(f"torn end of {self.torn_bytes} bytes{kept}")
        if self.bad_lines:
            parts.append(f"{self.bad_lines} unreadable {'line' if self.bad_lines == 1 else 'lines'} skipped")
        if self.nul_bytes:
            parts.append(f"{self.nul_bytes} NUL bytes skipped")
        if self.long_lines:
            parts.append(f"{self.long_lines} oversized {'line' if self.long_lines == 1 else 'lines'} skipped")
        if self.orphans:
            parts.append(f"{self.orphans} {'entry' if self.orphans == 1 else 'entries'} without a parent re-attached")
        return "damaged session: " + ", ".join(parts) if parts else ""


class Index:
    """Position and parent of every entry, as columns: a hundred thousand entries take a few megabytes."""

    __slots__ = ("by_id", "ids", "kinds", "lengths", "offsets", "parents")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.kinds: list[str] = []
        self.parents = array("q")
        self.offsets = array("q")
        self.lengths = array("q")
        self.by_id: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, entry_id: str, parent: int, kind: str, offset: int, length: int) -> int:
        """Add an entry and return its index; `parent` is an index or -1."""
        place = len(self.ids)
        self.ids.append(entry_id)
        self.kinds.append(kind)
        self.parents.append(parent)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.by_id[entry_id] = place
        return place

    def path(self, leaf: int) -> list[int]:
        """Return the indexes from root to leaf. Parents come before their children, so this terminates."""
        places = []
        while leaf >= 0:
            places.append(leaf)
            leaf = self.parents[leaf]
        places.reverse()
        return places


class Scan(Struct):
    index: Index = field(default_factory=Index)
    header: dict[str, Any] | None = None
    damage: Damage = field(default_factory=Damage)
    size: int = 0
    keep_bytes: int = 0
    """Size of the intact part; the rest is a torn end."""
    is_unended: bool = False
    """The last intact line lacks its newline."""
    looks_like_session: bool = False
    _interned: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The format version; a file that names none is version 1."""
        if self.header is None:
            return VERSION
        version = self.header.get("version")
        version = 1 if version is None else version
        return version if isinstance(version, int) else VERSION

    def add_lines(self, lines: list[bytes], offset: int) -> None:
        """Add whole lines that begin at an offset."""
        add, by_id, intern = self.index.add, self.index.by_id, self._interned.setdefault
        is_tree = self.header is not None and self.version >= 2
        for line in lines:
            # Fast path for nearly all lines; `add_line` handles everything unusual.
            head = try_decode_head(line) if is_tree else None
            if head is not None and head.id is not None and head.parentId in by_id and head.type != "session":
                add(head.id, by_id[head.parentId], intern(head.type, head.type), offset, len(line))
            elif not self.add_line(line, offset):
                self.damage.bad_lines += 1
            offset += len(line) + 1

    def add_line(self, line: bytes, offset: int) -> bool:
        """Add one line; False if it is unreadable."""
        body = line
        if offset == 0 and body.startswith(_BOM):
            body = body[len(_BOM) :]
            offset += len(_BOM)
        if b"\0" in body:
            self.damage.nul_bytes += body.count(b"\0")
            stripped = body.lstrip(b"\0")
            offset += len(body) - len(stripped)
            body = stripped.rstrip(b"\0")
        if not body.strip():
            return True
        head = decode_head(body)
        if head is None:
            return False
        if head.type == "session":
            if self.header is None:
                self.header = decode_object(body)
            return True
        self._add_entry(head, offset, len(body))
        return True

    def _add_entry(self, head: EntryHead, offset: int, length: int) -> None:
        index = self.index
        entry_id, kind = head.id, head.type
        previous = len(index) - 1
        if self.version < 2:
            # Version 1 is a list without ids; pi numbers its entries on loading too.
            entry_id, parent = f"{previous + 1:08x}", previous
        elif entry_id is None:
            entry_id, parent = f"at-{offset:x}", previous
            self.damage.orphans += 1
        elif head.parentId is None:
            parent = -1
        else:
            parent = -2 if head.parentId is UNSET else index.by_id.get(head.parentId, -2)
            if parent == -2:
                parent = previous
                self.damage.orphans += 1
        index.add(entry_id, parent, self._interned.setdefault(kind, kind), offset, length)


def scan_file(read: Callable[[int, int], bytes]) -> Scan:
    """Scan a file through `read(length, offset)` to its end, whatever it contains."""
    scan = Scan()
    carry = b""
    offset = 0
    is_skipping = False
    while chunk := read(CHUNK_BYTES, offset):
        start = offset - len(carry)
        offset += len(chunk)
        if is_skipping:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            is_skipping = False
            chunk = chunk[end + 1 :]
            start = offset - len(chunk)
        lines = (carry + chunk).split(b"\n") if carry else chunk.split(b"\n")
        carry = lines.pop()
        scan.add_lines(lines, start)
        if len(carry) > MAX_LINE_BYTES:
            scan.damage.long_lines += 1
            is_skipping = True
            carry = b""
    scan.size = scan.keep_bytes = offset
    if is_skipping:
        scan.is_unended = True
    elif carry:
        _judge_tail(scan, carry, offset - len(carry))
    scan.looks_like_session = scan.header is not None or len(scan.index) > 0 or scan.looks_like_session
    return scan


def _judge_tail(scan: Scan, tail: bytes, start: int) -> None:
    body = tail.rstrip(b"\0")
    nul_bytes = len(tail) - len(body)
    scan.damage.nul_bytes += nul_bytes
    if body and scan.add_line(body, start):
        scan.keep_bytes = start + len(body)
        scan.is_unended = True
        return
    scan.keep_bytes = start
    scan.damage.torn_bytes = len(body)
    # A file that ends inside its first line is a session whose creation was interrupted.
    scan.looks_like_session = start == 0 and body[: len(_LINE_START)] == _LINE_START[: len(body)]

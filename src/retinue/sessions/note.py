"""Notes: entries of a session before they are lines. Pure; knows no file."""

from collections.abc import Container, Iterable
from typing import Any, Final, NamedTuple
from zlib import crc32

from retinue.core.jsonline import encode_json
from retinue.sessions.entry import Stamp, encode_fields

_STRIDE: Final = 0x9E3779B1
"""Odd, so that adding it again and again passes every 32-bit number."""
_stamp = Stamp()


class Note(NamedTuple):
    """An entry before it is a line."""

    entry_id: str
    kind: str
    fields: dict[str, Any]
    at_ms: int


class Line(NamedTuple):
    """A note as it is written."""

    entry_id: str
    kind: str
    data: bytes


class EntryIds:
    """Ids that are unique in one file, which is all they need: a walk that visits every 32-bit number once."""

    def __init__(self, seed: str) -> None:
        self._place = crc32(seed.encode())

    def make(self, taken: Container[str]) -> str:
        """The next one that is not taken."""
        while True:
            self._place = (self._place + _STRIDE) & 0xFFFFFFFF
            entry_id = f"{self._place:08x}"
            if entry_id not in taken:
                return entry_id


def render_notes(notes: Iterable[Note], leaf_id: str | None) -> list[Line]:
    """Notes that hang on each other; the first one hangs on a leaf."""
    lines = []
    for entry_id, kind, fields, at_ms in notes:
        stamp = _stamp.render(at_ms)
        head = f'{{"type":"{kind}","id":"{entry_id}","parentId":{_quote_id(leaf_id)},"timestamp":"{stamp}",'
        lines.append(Line(entry_id, kind, b"".join((head.encode(), encode_fields(fields), b"}\n"))))
        leaf_id = entry_id
    return lines


def _quote_id(entry_id: str | None) -> str:
    # Ids of our own are plain; one that was found in a file may be anything.
    if entry_id is not None and entry_id.isascii() and entry_id.isalnum():
        return f'"{entry_id}"'
    return encode_json(entry_id).decode()

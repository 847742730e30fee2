"""A part of what is kept of a run, and the port to where such parts go. Must not know any database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from retinue.core.errors import RetinueError


class RecordError(RetinueError):
    """Raised when a run cannot be put on record: whatever was to follow must not happen."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what is kept of a run: bytes of a file of its session, or a state of its workspace."""

    kind: str
    path: str
    place: int
    data: bytes


class Shelf(Protocol):
    """Where the record of one run is kept."""

    async def keep(self, pieces: Sequence[Piece]) -> None:
        """Return when they are safe; raises RecordError when they are not."""
        ...

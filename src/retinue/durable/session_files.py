"""The files of a run's session as pieces: what is new in them since the last look, and all of them elsewhere.

Sessions only ever grow at their end, so that a piece is a place and the bytes from there on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from retinue.core.errors import RetinueError, quote


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


SESSION = "session"


class Mirror:
    """One folder of session files."""

    def __init__(self, folder: Path, only: str = "", kept: int = 0) -> None:
        """`only` is the one file that counts, of which so much is kept already; without it all below the folder do."""
        self._folder = folder
        self._only = only
        self._sizes: dict[str, int] = {only: kept}

    def restore(self, pieces: Iterable[Piece]) -> None:
        """Write the files as they were. Pieces come in the order they were taken."""
        for piece in pieces:
            if piece.kind != SESSION:
                continue
            # Whoever else writes into the database decides nothing about the files of this machine.
            if not piece.path or not (path := self._folder / piece.path).resolve().is_relative_to(
                self._folder.resolve()
            ):
                raise RetinueError(f"the record of the run names a file outside of its session: {quote(piece.path)}")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(piece.place)
                file.write(piece.data)
                self._sizes[piece.path] = max(self._sizes.get(piece.path, 0), file.tell())
            path.chmod(0o600)

    def collect(self) -> list[Piece]:
        """What has been added since the last look: whole lines only."""
        pieces = []
        for path in self._list():
            name = path.relative_to(self._folder).as_posix()
            known = self._sizes.get(name, 0)
            if path.stat().st_size <= known:
                continue
            with path.open("rb") as file:
                file.seek(known)
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            if data:
                pieces.append(Piece(SESSION, name, known, data))
        return pieces

    def _list(self) -> list[Path]:
        if not self._only:
            return sorted(self._folder.rglob("*.jsonl"))
        # It comes into being with the first reply.
        path = self._folder / self._only
        return [path] if path.exists() else []

    def settle(self, pieces: Iterable[Piece]) -> None:
        """Note what has been kept."""
        for piece in pieces:
            self._sizes[piece.path] = piece.place + len(piece.data)

"""Copies session files in pieces: collects what was appended since the last time, and restores files from pieces.

Sessions only grow at their end, so a piece is an offset and the bytes from there on.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from retinue.core.errors import RetinueError, quote


class RecordError(RetinueError):
    """Raised when a run cannot be recorded; the next step must not happen."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """A part of a run's record: bytes of a session file, or a snapshot of its workspace."""

    kind: str
    path: str
    place: int
    data: bytes


StoreParts = Callable[[Sequence[RecordPart]], Awaitable[None]]
"""Returns when the parts are stored durably, all or none. Raises RecordError."""
SESSION = "session"


class SessionFolder:
    """One folder of session files."""

    def __init__(self, folder: Path, only: str = "", kept: int = 0) -> None:
        """With `only`, just this file, of which `kept` bytes are stored already; else all files below the folder."""
        self._folder = folder
        self._only = only
        self._sizes: dict[str, int] = {only: kept}

    def restore(self, pieces: Iterable[RecordPart]) -> None:
        """Write the files from pieces, given in the order they were collected."""
        for piece in pieces:
            if piece.kind != SESSION:
                continue
            # Other writers of the database must not choose files on this machine.
            if not piece.path or not (path := self._folder / piece.path).resolve().is_relative_to(
                self._folder.resolve()
            ):
                raise RetinueError(f"the record of the run names a file outside its session: {quote(piece.path)}")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(piece.place)
                file.write(piece.data)
                self._sizes[piece.path] = max(self._sizes.get(piece.path, 0), file.tell())
            path.chmod(0o600)

    def collect(self) -> list[RecordPart]:
        """Return the whole lines that were appended since the last time."""
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
                pieces.append(RecordPart(SESSION, name, known, data))
        return pieces

    def _list(self) -> list[Path]:
        if not self._only:
            return sorted(self._folder.rglob("*.jsonl"))
        # The file is created by the first reply.
        path = self._folder / self._only
        return [path] if path.exists() else []

    def settle(self, pieces: Iterable[RecordPart]) -> None:
        """Mark pieces as stored."""
        for piece in pieces:
            self._sizes[piece.path] = piece.place + len(piece.data)

"""Tracks which run has read and changed which file, and locks files, so that runs do not overwrite each other's
changes.

Files are identified by real path, runs by id. Changes made by shell commands or other programs are not tracked: an
exact edit detects those by itself.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import ToolRetry, quote
from retinue.tools.paths import Revision

_MAX_SEEN = 20_000
_MAX_FILES = 5_000
_MAX_CHANGES = 8
_MAX_SHOWN = 6_000


class PathLocks:
    """Locks by real path, shared by all tools that write. Bound to one event loop."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        self._gate = asyncio.Lock()
        self._free = asyncio.Event()

    @asynccontextmanager
    async def hold_all(self) -> AsyncIterator[None]:
        """Wait until no file is locked, and keep it so."""
        async with self._gate:
            while self._held:
                self._free.clear()
                await self._free.wait()
            yield

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncIterator[None]:
        """Hold the lock of a file; all names of the file share one lock."""
        if self._gate.locked():
            async with self._gate:
                pass
        key = _to_key(path)
        lock, users = self._held.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._held[key]
            if not self._held:
                self._free.set()


def _to_key(path: str) -> str:
    return os.path.realpath(path)


Recorder: TypeAlias = Callable[[str, str, bytes], Callable[[], None] | None]
"""Gets the run, the real path of the file and its content; returns what withdraws the record. MUST NOT raise."""


class FileChange(Struct, frozen=True):
    run_id: str
    name: str
    """The display name of the run."""
    after: Revision
    patch: str


class FileChanges:
    """What the runs of one process have read and changed. The oldest entries are dropped first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], Revision] = OrderedDict()
        self._changes: OrderedDict[str, list[FileChange]] = OrderedDict()
        self.recorder: Recorder | None = None
        """Told of each change before it is made."""

    @contextmanager
    def recording(self, run_id: str, path: str, content: bytes) -> Iterator[None]:
        """Record that a run gives a file this content; if the body fails, that it did not."""
        withdraw = None if self.recorder is None else self.recorder(run_id, path, content)
        try:
            yield
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise

    def note_read(self, run_id: str, path: str, revision: Revision) -> None:
        self._seen[run_id, path] = revision
        self._seen.move_to_end((run_id, path))
        if len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    def note_change(self, path: str, change: FileChange) -> None:
        """Record a change; the run that made it has thereby also seen the new content."""
        self.note_read(change.run_id, path, change.after)
        changes = self._changes.setdefault(path, [])
        changes.append(change)
        del changes[:-_MAX_CHANGES]
        self._changes.move_to_end(path)
        if len(self._changes) > _MAX_FILES:
            self._changes.popitem(last=False)

    def note_rewritten(self, path: str, before: Revision, after: Revision) -> None:
        """Record that the user's editor has saved the same content again, which is no change."""
        path = os.path.realpath(path)
        for key in [key for key, seen in self._seen.items() if key[1] == path and seen == before]:
            self._seen[key] = after
        changes = self._changes.get(path, [])
        changes[:] = [replace(each, after=after) if each.after == before else each for each in changes]

    def check(self, run_id: str, path: str, shown: str, now: Revision | None, *, is_blind: bool) -> None:
        """Raise ToolRetry if another run has changed the file since this run last saw it.

        `is_blind` means that the new content does not depend on the old one; then a file that the run has never read is
        refused too.
        """
        missed = self._find_missed(run_id, path, now, is_blind=is_blind)
        if not missed:
            return
        names = " and ".join(dict.fromkeys(change.name for change in missed))
        patch = "\n".join(change.patch.strip("\n") for change in missed if change.patch)
        head = f"{quote(shown, 200)} was changed by {names} since you looked at it; nothing was written."
        if patch and len(patch) <= _MAX_SHOWN and now is not None:
            self.note_read(run_id, path, now)
            raise ToolRetry(f"{head} What changed:\n{patch}\nRepeat the call if it still fits.")
        raise ToolRetry(f"{head} Read it again and repeat the call.")

    def _find_missed(self, run_id: str, path: str, now: Revision | None, *, is_blind: bool) -> list[FileChange]:
        changes = self._changes.get(path)
        if not changes or changes[-1].run_id == run_id or changes[-1].after != now:
            return []  # unchanged, or last changed by this run or by another program
        seen = self._seen.get((run_id, path))
        if seen is None:
            return changes[-1:] if is_blind else []
        if seen == now:
            return []
        known = [index for index, change in enumerate(changes) if change.after == seen or change.run_id == run_id]
        return changes[known[-1] + 1 if known else 0 :]

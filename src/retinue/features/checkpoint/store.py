"""The checkpoints of one workspace: takes them, records who changed what, and reads contents back.

Several processes may use one workspace; a lock lets one of them take a checkpoint at a time.
"""

import asyncio
import hashlib
import json
import os
import stat
import time
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from retinue.core.errors import RetinueError, quote
from retinue.core.launch import Territory
from retinue.features.checkpoint.records import (
    EDITED,
    LINK,
    Checkpoint,
    CheckpointKind,
    FileVersion,
    FileWrite,
    Interval,
    Record,
    Restoration,
    SavedBranch,
    VoidWrite,
    attribute,
)
from retinue.features.checkpoint.trees import GIT_S, MAX_FILE_BYTES, WorkspaceTrees
from retinue.sandbox.open_beneath import open_beneath
from retinue.sessions.files import make_private
from retinue.sessions.lock import read_start_time, take_flock
from retinue.tools.file_changes import PathLocks

MAX_LOG_BYTES = 8 * 1024 * 1024
"""Above this size the older half of the log is dropped, with the contents that only it names."""
_TAIL_BYTES = 1024 * 1024
"""What a process reads of the log before it takes its first checkpoint."""
_PAUSE_S = 0.02
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Request(Struct, eq=False):
    """A checkpoint that was asked for."""

    kind: CheckpointKind
    facts: dict[str, Any]
    done: Checkpoint | Exception | None = None


class FoundFile(Struct, frozen=True):
    """A file as it is now."""

    version: FileVersion | None = None
    content: bytes = b""
    problem: str = ""
    """Why it cannot be read."""


class CheckpointStore:
    """The checkpoints of one workspace."""

    def __init__(
        self,
        top: str | os.PathLike[str],
        own_dir: Path,
        locks: PathLocks | None = None,
        list_hidden: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`own_dir` is our own folder; `locks` are those of the tools that write files in this process.

        `list_hidden` returns what agents must not read; by default what it was last.
        """
        self.top = os.path.realpath(top)
        self._folder = own_dir / "checkpoints" / hashlib.sha256(os.fsencode(self.top)).hexdigest()[:32]
        self._log = self._folder / "log.jsonl"
        self._locks = locks or PathLocks()
        self.trees = WorkspaceTrees(self.top, self._folder / "git", lambda: self._hidden)
        self._list_hidden = list_hidden
        self.process = f"{os.getpid()}-{read_start_time(os.getpid())}"
        self._interval = Interval()
        self._offset = -1
        """Up to where the log was read; -1: not yet."""
        self._kept: dict[str, set[str]] = {}
        self._turn = asyncio.Lock()
        self._requests: list[_Request] = []
        """Those that wait for a checkpoint that begins later."""

    @cached_property
    def _hidden(self) -> Territory:
        path = self._folder / "hidden.json"
        if self._list_hidden is not None:
            places = tuple(self._list_hidden())
            path.write_text(json.dumps(places))
        else:
            places = tuple(json.loads(path.read_text())) if path.exists() else ()
        return Territory((), places)

    @property
    def has_trees(self) -> bool:
        return self.trees.is_possible

    @property
    def is_used(self) -> bool:
        return self._log.exists()

    async def take(self, kind: CheckpointKind, **facts: Any) -> Checkpoint:
        """Take a checkpoint, and record what has changed since the last one. Raises RetinueError.

        All requests that come while one is taken share the next one.
        """
        request = _Request(kind, facts)
        self._requests.append(request)
        try:
            async with self._turn:
                if request.done is None:
                    await self._take_waiting()
        finally:
            self._forget([request])  # of one that was cancelled
        if not isinstance(request.done, Checkpoint):
            raise request.done or RetinueError("checkpoints: none was taken")
        return request.done

    async def _take_waiting(self) -> None:
        served = list(self._requests)
        taken: Sequence[Checkpoint | Exception]
        try:
            # What tools write meanwhile would be in the tree or not.
            async with self._locks.hold_all(), self._hold():
                served = list(self._requests)
                found, facts = await self._look(with_head=any(each.kind != "call" for each in served))
                served = [each for each in served if each in self._requests]  # others were cancelled
                made = [Checkpoint(at=time.time_ns(), kind=each.kind, **facts, **each.facts) for each in served]
                self.append(*found, *made)
                taken = made
        except (RetinueError, OSError, ValueError) as error:
            taken = [error] * len(served)
        for each, done in zip(served, taken, strict=True):
            each.done = done
        self._forget(served)

    def _forget(self, requests: Collection[_Request]) -> None:
        self._requests = [each for each in self._requests if each not in requests]

    async def _look(self, *, with_head: bool) -> tuple[list[Record], dict[str, Any]]:
        """Return what has changed since the last checkpoint, and what the next one consists of."""
        await asyncio.to_thread(self._read_new)
        interval = self._interval
        facts: dict[str, Any] = {"process": self.process}
        found: list[Record] = []
        if self.has_trees:
            snapshot = await self.trees.take()
            facts |= {"tree": snapshot.tree, "left_out": snapshot.left_out}
            if with_head:
                facts["head"] = await self.trees.read_head()
            if interval.last is not None and interval.last.tree:
                changed = await self.trees.compare(interval.last.tree, snapshot.tree)
                found += attribute(changed, interval.writes, interval.list_runs(_is_alive), time.time_ns())
            # What changes from now on was not changed by calls of a process that is dead.
            lost = {name: call for name, call in interval.calls.items() if not _is_alive(call.process)}
            found += [Checkpoint(at=time.time_ns(), kind="call", run=lost[name].run, closes=name) for name in lost]
        return found, facts

    async def keep(self, session: str) -> None:
        """Protect the trees of a session from `git gc`. Raises RetinueError."""
        if not self.has_trees:
            return
        trees = {tree for record in await asyncio.to_thread(self.read_records) for tree in _list_trees(record, session)}
        if trees - self._kept.get(session, set()):
            await self.trees.keep(session, trees)
            self._kept[session] = trees

    def note_write(self, run: str, path: str, content: bytes) -> Callable[[], None]:
        """Record that a tool is about to give a file this content; returns what to call if it does not.

        `path` is real. Of files outside of the workspace only the path is recorded.
        """
        relative = os.path.relpath(path, self.top)
        write = FileWrite(at=time.time_ns(), run=run, path=path)
        if not relative.startswith("../"):
            found = self.read_file(relative)
            mode = EDITED if found.version is None else found.version.mode
            before = None if found.version is None else FileVersion(mode, self.save(found.content))
            write = FileWrite(
                at=time.time_ns(), run=run, path=relative, before=before, after=FileVersion(mode, self.save(content))
            )
        self.append(write)
        return lambda: self.append(VoidWrite(at=time.time_ns(), run=run, path=write.path))

    async def note_branch(self, run: str, session: str, branch: str, base: str) -> None:
        """Record the branch that a run left, and the commit with which it began. Raises OSError."""
        ref, is_whole = f"refs/heads/{branch}", False
        parents = (await self.trees.ask("rev-parse", f"{base}^@")).text.split()
        if len(parents) == 2:
            # The branch may have been merged with the target, for the run to solve the conflicts.
            earlier = [each for each in self.read_records() if isinstance(each, SavedBranch) and each.run == run]
            is_whole = any(each.tip == parents[0] for each in earlier)
            base = parents[1] if is_whole else base
        names = (f"{ref}^{{commit}}", f"{base}^{{tree}}", f"{ref}^{{tree}}")
        found = [await self.trees.ask("rev-parse", "--verify", name) for name in names]
        if all(each.ok for each in found):
            tip, before, after = (each.text for each in found)
            facts = {"run": run, "session": session, "branch": branch, "tip": tip, "before": before, "after": after}
            self.append(SavedBranch(at=time.time_ns(), is_whole=is_whole, **facts))

    def read_file(self, path: str) -> FoundFile:
        """Read a file below the workspace without following links."""
        folder, name = os.path.split(path)
        try:
            parent = open_beneath(self.top, folder)
        except OSError:
            return FoundFile()  # also if a link or a file has taken the place of a folder
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(name, dir_fd=parent))
                return FoundFile(FileVersion(LINK, self.trees.name(content)), content)
            if stat.S_ISDIR(status.st_mode):
                return FoundFile()
            if not stat.S_ISREG(status.st_mode):
                return FoundFile(problem="it is not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                return FoundFile(problem="it is too large")
            with os.fdopen(os.open(name, _READING, dir_fd=parent), "rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            mode = "100755" if status.st_mode & stat.S_IXUSR else EDITED
            return FoundFile(FileVersion(mode, self.trees.name(content)), content)
        except FileNotFoundError:
            return FoundFile()
        except OSError as error:
            return FoundFile(problem=f"it cannot be read: {error.strerror}")
        finally:
            os.close(parent)

    def save(self, content: bytes) -> str:
        """Store a content and return its name. Raises OSError."""
        name = self.trees.name(content)
        path = self._content_path(name)
        if not path.exists():
            make_private(path.parent)
            draft = path.with_name(f"{name}.{os.urandom(4).hex()}.tmp")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(zlib.compress(content, 1))
            draft.replace(path)
        return name

    async def load(self, versions: Iterable[FileVersion | None]) -> dict[str, bytes]:
        """Return contents by name; what is lost is left out."""
        names = {version.id for version in versions if version is not None}
        found = await asyncio.to_thread(self._load_saved, names)
        missing = names - found.keys()
        return {**found, **(await self.trees.read(missing) if missing and self.has_trees else {})}

    def _load_saved(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            with suppress(OSError, zlib.error):
                content = zlib.decompress(self._content_path(name).read_bytes())
                if self.trees.name(content) == name:
                    found[name] = content
        return found

    def _content_path(self, name: str) -> Path:
        return self._folder / "contents" / name[:2] / name

    def read_records(self) -> list[Record]:
        """Return the whole log, oldest first."""
        try:
            return list(_decode(self._log.read_bytes()))
        except FileNotFoundError:
            return []

    def append(self, *records: Record) -> None:
        """Append records. Raises OSError."""
        # File names need not be valid text, so msgspec cannot encode them.
        data = b"".join(json.dumps(msgspec.to_builtins(record)).encode() + b"\n" for record in records)
        make_private(self._folder)
        handle = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)

    def list_busy(self) -> list[str]:
        """Return the runs of living processes that have not ended."""
        interval = Interval()
        for record in self.read_records():
            interval.apply(record)
        return sorted(run for run, process in interval.runs.items() if _is_alive(process))

    async def prune(self) -> None:
        """Drop the older half of a log that has grown too long, and what only that needed. Raises RetinueError."""
        if not self._log.exists() or self._log.stat().st_size <= MAX_LOG_BYTES:
            return
        async with self._locks.hold_all(), self._hold():
            gone = await asyncio.to_thread(self._shorten)
            if self.has_trees:
                await self.trees.forget(gone)

    def _shorten(self) -> set[str]:
        """Return the sessions of which nothing is left."""
        records = self.read_records()
        kept = records[len(records) // 2 :]
        draft = self._log.with_name("log.tmp")
        draft.write_bytes(b"".join(json.dumps(msgspec.to_builtins(each)).encode() + b"\n" for each in kept))
        draft.replace(self._log)
        self._offset, self._interval = -1, Interval()
        names = {version.id for each in kept for version in _list_versions(each) if version is not None}
        for path in (self._folder / "contents").glob("*/*"):
            if path.name not in names:
                path.unlink(missing_ok=True)
        sessions = [{each.session for each in part if isinstance(each, Checkpoint)} for part in (records, kept)]
        return sessions[0] - sessions[1]

    def _read_new(self) -> None:
        try:
            with open(self._log, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if self._offset < 0 or size < self._offset:
                    self._interval, self._offset = Interval(), max(0, size - _TAIL_BYTES)
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for record in _decode(data[:whole]):
            self._interval.apply(record)

    @asynccontextmanager
    async def _hold(self) -> AsyncIterator[None]:
        """Exclude other processes. Raises RetinueError if one holds the lock for long."""
        make_private(self._folder)
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline_s = time.monotonic() + GIT_S
            while not await asyncio.to_thread(partial(_try_lock, handle)):
                if time.monotonic() > deadline_s:
                    raise RetinueError(f"another process takes a checkpoint of {quote(self.top, 200)} and does not end")
                await asyncio.sleep(_PAUSE_S)
            yield
        finally:
            os.close(handle)


def _decode(data: bytes) -> Iterable[Record]:
    for line in data.splitlines():
        try:
            yield msgspec.convert(json.loads(line), Record)
        except (ValueError, msgspec.MsgspecError):
            continue  # a torn line, or one of a newer version


def _list_trees(record: Record, session: str) -> list[str]:
    if isinstance(record, Checkpoint | SavedBranch) and record.session == session:
        found = [record.tree] if isinstance(record, Checkpoint) else [record.before, record.after]
        return list(filter(None, found))
    return []


def _list_versions(record: Record) -> list[FileVersion | None]:
    if isinstance(record, FileWrite):
        return [record.before, record.after]
    return [each for row in record.files for each in row[1:]] if isinstance(record, Restoration) else []


def _try_lock(handle: int) -> bool:
    try:
        take_flock(handle)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def _is_alive(process: str) -> bool:
    pid, _, started = process.partition("-")
    return pid.isdigit() and (read_start_time(int(pid)) == started if started else Path(f"/proc/{pid}").exists())

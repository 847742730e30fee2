"""Records of all existing worktrees on disk, so that no work is lost after a crash.

`<id>.json` describes one worktree; the owning process holds a lock on `<owner>.lock` for its whole life. Must not know
git.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

import msgspec
from msgspec import Struct

from retinue.core.errors import IsolationFailed, quote
from retinue.core.pattern import late_pattern
from retinue.sessions.files import make_private
from retinue.sessions.lock import LockHolder, take_flock

State: TypeAlias = Literal["creating", "live", "removing"]
"""In state `creating` it was never used, in `removing` everything is committed: only `live` worktrees contain work."""

_NAME = late_pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OWNER = late_pattern(r"\d+-\d+-[0-9a-f]{8}")
_OWNED = late_pattern(rf"({_OWNER.pattern})\.(?:lock|tmp|.*\.tmp)")
_MAX_RECORD = 64 * 1024


class CopyRecord(Struct, frozen=True, kw_only=True):
    run_id: str
    state: State
    path: str
    top: str
    """The checkout it was made from."""
    common: str
    """The git directory that both share."""
    base: str
    """The commit it started with."""
    description: str = ""
    git_dir: str = ""
    """Git's own directory for this worktree, below `common`."""
    branch: str = ""
    """The branch it continues after a resume."""
    asker: str = ""
    """The run whose worktree this run was started from; it also gets the branch."""
    names_repo: bool = False
    """Whether the result names the repository: only if the caller chose the directory."""
    owner: str = ""
    pid: int = 0
    created_ms: int = 0


class Records:
    """The records of one agent directory, as seen by one process. Close it at the end."""

    def __init__(self, directory: Path) -> None:
        # Git gets these paths while running in other directories.
        self.directory = directory.absolute()
        self._owner = ""
        self._lock = -1

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """Descriptors for child processes that work on our worktrees, so that the lock is held until they end."""
        return (self._lock,) if self._lock >= 0 else ()

    def index_path(self, run_id: str) -> Path:
        """Return the path of our own index of a worktree; the agent can damage the index in the worktree."""
        return self.directory / f"{run_id}.index"

    def repository_path(self, run_id: str) -> str:
        """Return the path of the repository that the run writes; the sandbox knows this location."""
        return str(self.directory / f"{run_id}.git")

    def refs_path(self, run_id: str) -> Path:
        return self.directory / f"{run_id}.refs"

    def make_store(self, run_id: str) -> str:
        """Create a directory in which a run's objects are verified before they reach the user's repository."""
        return tempfile.mkdtemp("", f"{check_name(run_id)}.objects-", self.directory)

    def list_folders(self, run_id: str) -> list[str]:
        """Return the folders of a worktree that must be removed before its record."""
        stores = [name for name in self._names() if name.startswith(f"{run_id}.objects-")]
        return [self.repository_path(run_id), *(str(self.directory / name) for name in stores)]

    def claim(self, record: CopyRecord) -> CopyRecord:
        self._take_lock()
        return msgspec.structs.replace(record, owner=self._owner, pid=os.getpid())

    def is_own(self, record: CopyRecord) -> bool:
        return bool(self._owner) and record.owner == self._owner

    def save(self, record: CopyRecord) -> None:
        """Write a record durably."""
        path = self._path(record.run_id)
        temporary = self.directory / f"{record.owner}.{record.run_id}.tmp"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            # Not msgspec: file names need not be valid text.
            file.write(json.dumps(msgspec.to_builtins(record)).encode())
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
        self._sync()

    def remove(self, record: CopyRecord) -> None:
        """Delete the record and our files of a worktree."""
        index = self.index_path(record.run_id)
        for ending in ("", ".lock", ".inner", ".inner.lock"):
            index.with_name(index.name + ending).unlink(missing_ok=True)
        self.refs_path(record.run_id).unlink(missing_ok=True)
        self._path(record.run_id).unlink(missing_ok=True)

    def find(self, run_id: str) -> CopyRecord | None:
        return _load(self._path(run_id))

    def find_by_repository(self, path: str) -> CopyRecord | None:
        """Return the worktree whose run writes this repository; None if there is none."""
        folder, name = os.path.split(path)
        run_id = name.removesuffix(".git")
        is_ours = folder == os.path.realpath(self.directory) and run_id != name and _NAME.fullmatch(run_id)
        return self.find(run_id) if is_ours else None

    def list_all(self) -> list[CopyRecord]:
        """Return all worktrees, oldest first."""
        names = [name for name in self._names() if name.endswith(".json")]
        found = [record for name in names if (record := _load(self.directory / name)) is not None]
        return sorted(found, key=lambda record: (record.created_ms, record.run_id))

    @contextmanager
    def take_over(self, owner: str) -> Iterator[bool]:
        """Hold a dead owner's lock, so that no other process cleans up after it; yields False if the owner is alive."""
        if owner == self._owner:
            yield False
            return
        # An owner that exits normally removes its lock; then it is created again to exclude other cleaners.
        handle = os.open(self.directory / f"{owner}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Without a name it is the lock of a process that has just cleaned up.
            yield _try_lock(handle) and os.fstat(handle).st_nlink > 0
        finally:
            os.close(handle)

    def is_dying(self, owner: str) -> bool:
        """Return whether an owner has ended but its child processes still hold its lock."""
        try:
            data = (self.directory / f"{owner}.lock").read_bytes()
            if msgspec.json.decode(data, type=LockHolder).is_alive:
                return False
        except (OSError, msgspec.MsgspecError):
            return False
        with self.take_over(owner) as is_free:
            return not is_free

    def forget_owner(self, owner: str) -> None:
        """Remove a dead owner's temporary files, and its lock once it has no worktrees."""
        names = self._names()
        for name in names:
            if name.startswith(f"{owner}.") and name.endswith(".tmp"):
                (self.directory / name).unlink(missing_ok=True)
        if not any(record.owner == owner for record in self.list_all()):
            (self.directory / f"{owner}.lock").unlink(missing_ok=True)

    def list_owners(self) -> list[str]:
        names = {match[1] for name in self._names() if (match := _OWNED.fullmatch(name))}
        return sorted(names | {record.owner for record in self.list_all()})

    def close(self) -> None:
        """Release the lock; worktrees that are still recorded become leftovers."""
        if self._lock >= 0:
            with suppress(OSError):
                (self.directory / f"{self._owner}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock, self._owner = -1, ""

    def _take_lock(self) -> None:
        if self._lock >= 0:
            return
        make_private(self.directory)
        for attempt in range(3):
            try:
                self._lock, self._owner = self._make_lock()
                return
            except FileNotFoundError:
                # A process that cleans up removed the file in the moment before it was locked.
                if attempt == 2:
                    raise

    def _make_lock(self) -> tuple[int, str]:
        me = LockHolder.me()
        owner = f"{me.pid}-{me.started or int(time.time())}-{os.urandom(4).hex()}"
        temporary = self.directory / f"{owner}.tmp"
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, msgspec.json.encode(me))
            with suppress(OSError):
                take_flock(handle)
            # Renamed only after it is locked: an unlocked file counts as dead.
            os.rename(temporary, self.directory / f"{owner}.lock")
        except BaseException:
            os.close(handle)
            raise
        return handle, owner

    def _path(self, run_id: str) -> Path:
        return self.directory / f"{check_name(run_id)}.json"

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.directory)
        except FileNotFoundError:
            return []

    def _sync(self) -> None:
        handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_name(run_id: str) -> str:
    """Return the run id if it may be part of file and branch names. Raises IsolationFailed."""
    if not _NAME.fullmatch(run_id):
        refuse(
            f"the run id {quote(run_id)} cannot name a branch; "
            "expected 1 to 64 letters, digits, hyphens and underscores"
        )
    return run_id


def refuse(reason: str) -> NoReturn:
    raise IsolationFailed(f'Cannot run with isolation: "worktree": {reason}')


def _load(path: Path) -> CopyRecord | None:
    # Records appear by rename, so an unreadable file is not ours.
    try:
        with open(path, "rb") as file:
            record = msgspec.convert(json.loads(file.read(_MAX_RECORD)), type=CopyRecord)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None
    is_sound = record.run_id == path.stem and _NAME.fullmatch(record.run_id) and _OWNER.fullmatch(record.owner)
    return record if is_sound else None


def _try_lock(handle: int) -> bool:
    try:
        take_flock(handle)
    except BlockingIOError:
        return False
    except OSError:
        # This file system has no flock: decide by the recorded process.
        try:
            return not msgspec.json.decode(os.pread(handle, 4096, 0), type=LockHolder).is_alive
        except (OSError, msgspec.MsgspecError):
            return False
    return True

"""The job file of one session: read into memory, changed under a lock between processes.

Must not know when jobs are due. All calls block, usually for less than a millisecond.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError, RetinueError, UsageError, quote
from retinue.core.jsonline import to_plain
from retinue.features.schedule.job import Job, parse_job, to_entry

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_PAUSE_S: Final = 0.005


@contextmanager
def hold_lock(name: str, *, folder: int, wait_s: float) -> Iterator[None]:
    """Hold the lock file `name` in an open folder. Raises TimeoutError if another process keeps it."""
    descriptor = _take(name, folder, time.monotonic() + wait_s)
    try:
        # For people, and for programs that treat the file itself as the lock.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        # Removed while still locked: a process that waits for this file notices that it has no name any more.
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        os.close(descriptor)


def _take(name: str, folder: int, deadline_s: float) -> int:
    while True:
        descriptor = os.open(name, _FLAGS, 0o600, dir_fd=folder)
        is_ours = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = _is_current(descriptor, name, folder)
            if is_ours:
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise TimeoutError(name) from None
            time.sleep(_PAUSE_S)
        finally:
            if not is_ours:
                os.close(descriptor)


def _is_current(descriptor: int, name: str, folder: int) -> bool:
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


FOLDERS: Final = (".pi", "subagent-schedules")
VERSION: Final = 1
_MAX_BYTES: Final = 64_000_000
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

Document = dict[str, Any]
Edit = Callable[[Job], Job]


class StoreError(RetinueError):
    """Raised when jobs cannot be written; the file is unchanged."""


class ScheduleStore:
    """The scheduled jobs of one session. Reads use the copy in memory; every change reads the file first."""

    def __init__(self, project: Path, session_id: str, *, wait_s: float = 5.0) -> None:
        if _SESSION_ID.fullmatch(session_id) is None:
            raise UsageError(f"{quote(session_id)} is not a session id; expected letters, digits, '.', '_' and '-'")
        self.path = project.joinpath(*FOLDERS, f"{session_id}.json")
        self.problems: list[Diagnostic] = []
        """Problems found when the file was last read."""
        self._project = project
        self._wait_s = wait_s
        self._jobs: dict[str, Job] = {}
        self._stamp: tuple[int, ...] | None = None
        self.revision = 0
        """Increases when the file was changed by another process."""
        self.reload()

    @property
    def jobs(self) -> list[Job]:
        """All jobs, including disabled ones, in creation order."""
        return list(self._jobs.values())

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def add(self, job: Job) -> None:
        """Add a job. Raises UsageError if its name is taken."""

        def append(document: Document) -> bool:
            if any(known.name == job.name for known in self._jobs.values()):
                raise UsageError(f'A scheduled job named "{quote(job.name)[1:-1]}" already exists.')
            document["jobs"].append(to_entry(job))
            return True

        self._change(append, make=True)

    def update(self, edits: Mapping[str, Edit], *, wait_s: float | None = None) -> dict[str, Job]:
        """Change jobs in one write; returns those that changed. Unknown ids are ignored."""
        changed: dict[str, Job] = {}

        def apply(document: Document) -> bool:
            for index, entry in enumerate(document["jobs"]):
                known = self._jobs.get(entry.get("id", "")) if isinstance(entry, dict) else None
                if known is None or known.id not in edits:
                    continue
                after = edits[known.id](known)
                if after != known:
                    document["jobs"][index] = to_entry(after, entry)
                    changed[after.id] = after
            return bool(changed)

        if self._knows(edits):
            self._change(apply, wait_s=wait_s)
        return changed

    def remove(self, job_id: str) -> Job | None:
        """Remove and return a job; None if there is none."""
        removed: list[Job] = []

        def drop(document: Document) -> bool:
            removed.extend(job for job in self._jobs.values() if job.id == job_id)
            document["jobs"] = [entry for entry in document["jobs"] if not _has_id(entry, job_id)]
            return bool(removed)

        if self._knows([job_id]):
            self._change(drop)
        return removed[0] if removed else None

    def reload(self) -> None:
        """Read the file if it changed."""
        if _read_stamp(self.path) != self._stamp:
            with self._open_folder(make=False) as folder:
                self._read(folder)

    def _knows(self, ids: Iterable[str]) -> bool:
        self.reload()
        return any(job_id in self._jobs for job_id in ids)

    def _change(self, change: Callable[[Document], bool], *, make: bool = False, wait_s: float | None = None) -> None:
        """Let a function change the file's content; it returns whether it did."""
        wait_s = self._wait_s if wait_s is None else wait_s
        try:
            with self._open_folder(make=make) as folder:
                if folder is None:
                    self._refuse()
                    return
                with hold_lock(self.path.name + ".lock", folder=folder, wait_s=wait_s):
                    document, broken = self._read(folder)
                    if document is None:
                        self._refuse()
                    elif change(document):
                        if broken:
                            _set_aside(self.path.name, folder)
                        self._write(document, folder)
        except TimeoutError:
            raise StoreError(f"Failed to acquire schedule lock: {self.path}.lock is held by another process") from None
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {(error.strerror or str(error)).lower()}") from None

    def _refuse(self) -> None:
        if self.problems:
            raise StoreError(self.problems[0].message)

    @contextmanager
    def _open_folder(self, *, make: bool) -> Iterator[int | None]:
        """Open the file's folder without following links below the project; yields None if it cannot be used."""
        self.problems = []
        opened: list[int] = []
        try:
            opened.append(os.open(self._project, _FOLDER_FLAGS))
            at = self._project
            for name in FOLDERS:
                at = at / name
                if make:
                    _make_folder(name, opened[-1])
                if stat.S_ISLNK(os.stat(name, dir_fd=opened[-1], follow_symlinks=False).st_mode):
                    self._complain(at, "is a symbolic link; schedules are kept in real directories only")
                    break
                opened.append(os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=opened[-1]))
        except FileNotFoundError:
            if make:
                self._complain(self._project, "does not exist")
        except OSError as error:
            self._complain(self.path, f"cannot be used: {(error.strerror or str(error)).lower()}")
        try:
            yield opened[-1] if len(opened) == 1 + len(FOLDERS) else None
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _read(self, folder: int | None) -> tuple[Document | None, bool]:
        """Return the document, and whether the file is broken; None if the file must not be replaced."""
        stamp = self._stamp
        found = self._read_document(folder)
        self.revision += self._stamp != stamp
        return found

    def _read_document(self, folder: int | None) -> tuple[Document | None, bool]:
        empty: Document = {"version": VERSION, "jobs": []}
        before = self._jobs
        self._jobs, self._stamp = {}, None
        if folder is None:
            return empty, False
        try:
            data, self._stamp = _read_file(self.path.name, folder)
        except FileNotFoundError:
            return empty, False
        except OSError as error:
            self._jobs = before  # a disk error says nothing about the jobs
            self._complain(self.path, f"cannot be read: {(error.strerror or str(error)).lower()}")
            return None, False
        try:
            document = orjson.loads(data)
            why = _find_fault(document)
        except orjson.JSONDecodeError as error:
            why = f"is not JSON ({error})"
        if why:
            self._complain(self.path, f"{why}; it counts as empty and is kept aside at the next change")
            return empty, True
        if document.get("version", VERSION) != VERSION:
            found = quote(document["version"])
            self._complain(self.path, f"has version {found}; expected {VERSION}, so it stays unchanged")
            return None, False
        self._take(document["jobs"])
        return document, False

    def _take(self, entries: list[Any]) -> None:
        for index, entry in enumerate(entries):
            try:
                job = parse_job(entry)
            except ConfigError as error:
                self._complain(self.path, f"jobs[{index}] {error}; it stays unchanged")
                continue
            self._jobs.setdefault(job.id, job)

    def _write(self, document: Document, folder: int) -> None:
        try:
            data = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        except orjson.JSONEncodeError:
            document = to_plain(document)
            data = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        name, temporary = self.path.name, self.path.name + ".tmp"
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
                stamp = _to_stamp(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)
        self._stamp = stamp
        self.problems, self._jobs = [], {}
        self._take(document["jobs"])

    def _complain(self, path: Path, what: str) -> None:
        self.problems.append(Diagnostic(f"{path}: {what}", str(path), code="schedules"))


def list_sessions(project: Path) -> list[str]:
    """Return the ids of a project's sessions that have a job file; links are not followed."""
    folder = project
    for name in FOLDERS:
        folder = folder / name
        if folder.is_symlink():
            return []
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    except OSError:
        return []
    ids = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [session_id for session_id in ids if _SESSION_ID.fullmatch(session_id)]


def _make_folder(name: str, parent: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        os.fsync(parent)


def _has_id(entry: object, job_id: str) -> bool:
    return isinstance(entry, dict) and entry.get("id") == job_id


def _find_fault(document: Any) -> str:
    if not isinstance(document, dict):
        return "is not an object"
    return "" if isinstance(document.get("jobs"), list) else "has no list named jobs"


def _read_file(name: str, folder: int) -> tuple[bytes, tuple[int, ...]]:
    descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is not a regular file")
        if status.st_size > _MAX_BYTES:
            raise OSError(None, f"it has more than {_MAX_BYTES} bytes")
        return file.read(_MAX_BYTES), _to_stamp(status)


def _read_stamp(path: Path) -> tuple[int, ...] | None:
    try:
        return _to_stamp(os.lstat(path))
    except OSError:
        return None


def _to_stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _set_aside(name: str, folder: int) -> None:
    """Rename a broken file to the first free backup name; the last name is overwritten."""
    for turn in range(1, 10):
        kept = f"{name}.broken-{turn}"
        try:
            os.link(name, kept, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            continue
        except OSError:
            break
        return
    os.rename(name, f"{name}.broken-9", src_dir_fd=folder, dst_dir_fd=folder)

"""One writer per session: an flock on the session file, and a file beside it that names the holder.

The note file (`<file>.lock`) is informative; on file systems without flock it is the lock. Must not know entries.
"""

import errno
import fcntl
import os
import re
import socket
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.core.errors import SessionLocked
from retinue.sessions.files import Files

STALE_AFTER_S = 900
"""A note from another machine that is older than this counts as abandoned."""

ORPHAN_S = 2.0
"""How long the lock of a dead process may survive in a child that it was just starting."""

_NO_FLOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class LockHolder(Struct):
    """The process that writes a session."""

    pid: int
    started: str
    """Start time as the kernel counts it, because process ids are reused."""
    host: str

    @classmethod
    def me(cls) -> "LockHolder":
        return cls(os.getpid(), read_start_time(os.getpid()), socket.gethostname())

    @property
    def is_alive(self) -> bool:
        """Whether that process still runs; assumed for other machines."""
        if self.host != socket.gethostname():
            return True
        if not self.started:
            return _is_running(self.pid)
        return read_start_time(self.pid) == self.started


class Lock:
    """A held lock, freed by `release` or by the kernel when the process dies."""

    def __init__(self, path: Path, *, exclusive_note: bool) -> None:
        self.path = path
        self.exclusive_note = exclusive_note
        """True if there is no flock: the note is the lock and must be touched regularly."""
        self._touched_s = time.monotonic()

    @classmethod
    def take(cls, path: Path, fd: int, files: Files) -> "Lock":
        """Lock an open session file. Raises SessionLocked with the holder's process id."""
        try:
            _take_when_free(path, fd)
        except BlockingIOError:
            raise _refuse(path, read_note(path) or _find_holder(fd)) from None
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            _take_note(path, files)
            return cls(path, exclusive_note=True)
        _write_note(path, files)
        return cls(path, exclusive_note=False)

    def touch(self) -> None:
        """Show that the holder is alive, if the note is the lock."""
        if self.exclusive_note and time.monotonic() - self._touched_s > STALE_AFTER_S / 10:
            self._touched_s = time.monotonic()
            try:
                os.utime(note_path(self.path))
            except OSError:
                return

    def release(self, files: Files) -> None:
        """Remove the note; the flock ends when its descriptor is closed."""
        holder = read_note(self.path)
        if holder is not None and holder.pid == os.getpid():
            try:
                files.unlink(note_path(self.path))
            except OSError:
                return


def _take_when_free(path: Path, fd: int) -> None:
    """Take the flock; if its holder is dead, wait a moment for a child that it was just starting.

    Such a child shares the lock from its fork until it executes its program or dies with its parent.
    """
    deadline_s = time.monotonic() + ORPHAN_S
    while True:
        try:
            return take_flock(fd)
        except BlockingIOError:
            holder = read_note(path) or _find_holder(fd)
            if time.monotonic() >= deadline_s or (holder is not None and holder.is_alive):
                raise
            time.sleep(0.02)


def take_flock(fd: int) -> None:
    """Take the flock, or raise OSError. Separate because not every file system has flock."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def note_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def read_note(path: Path) -> LockHolder | None:
    """Return the process that the note names, if it is alive."""
    try:
        holder = msgspec.json.decode(note_path(path).read_bytes(), type=LockHolder)
    except (OSError, msgspec.MsgspecError):
        return None
    return holder if holder.is_alive else None


def read_start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _find_holder(fd: int) -> LockHolder | None:
    # The kernel's own list is right even if the note was removed.
    info = os.fstat(fd)
    ending = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    try:
        table = Path("/proc/locks").read_text()
    except OSError:
        return None
    # The process id is 0 if the process is in another namespace.
    found = re.search(rf": FLOCK +\w+ +\w+ ([1-9]\d*) {ending} ", table)
    return None if found is None else LockHolder(int(found[1]), "", socket.gethostname())


def _refuse(path: Path, holder: LockHolder | None) -> SessionLocked:
    if holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        text = "is being written by another run of this program; wait for it, or start a new session"
        return SessionLocked(f"session {path} {text}")
    who = "another process" if holder is None else f"process {holder.pid}"
    if holder is not None and holder.host != socket.gethostname():
        who += f" on {holder.host}"
    return SessionLocked(f"session {path} is being written by {who}; stop that process, or start a new session")


def _write_note(path: Path, files: Files) -> None:
    # Best effort: without the note a second process is still refused, but not told who holds the lock.
    try:
        fd = files.open(note_path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            files.write(fd, msgspec.json.encode(LockHolder.me()))
        finally:
            files.close(fd)
    except OSError:
        return


def _take_note(path: Path, files: Files) -> None:
    note = note_path(path)
    for _ in range(3):
        try:
            fd = files.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            holder = read_note(path)
            if holder is not None and not _is_stale(note, holder):
                raise _refuse(path, holder) from None
            files.unlink(note)
            continue
        try:
            files.write(fd, msgspec.json.encode(LockHolder.me()))
        finally:
            files.close(fd)
        return
    raise _refuse(path, None)


def _is_stale(note: Path, holder: LockHolder) -> bool:
    """Return whether a note from another machine is abandoned; local processes are checked directly."""
    try:
        return holder.host != socket.gethostname() and time.time() - note.stat().st_mtime > STALE_AFTER_S
    except OSError:
        return False

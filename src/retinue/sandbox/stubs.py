"""Stubs: empty files and directories in place of missing protected paths, so that commands cannot create them.

A mount needs a mount point, so the stub exists on disk while a command needs it. A special mode and time mark it. Every
user holds a shared lock, and the last one removes the stub, even if its creator crashed. It MUST NOT be removed
earlier: the kernel drops a mount if its mount point is removed elsewhere.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from retinue.sandbox.open_beneath import enter_parent

_MARK_NS = 86_399_000_000_007
"""A day after the epoch; real files practically never have this time."""
_MARK_MODE = stat.S_ISVTX
"""Set when the stub is created, before its time is set: another command may see it in between."""
_TRIES, _REST_S = 100, 0.001
STANDBY_S = 0.5


class Stubs:
    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def hold(self, files: Sequence[str], folders: Sequence[str]) -> None:
        """Create a stub for each missing path; existing real files are left alone.

        Raises OSError if a stub cannot be created, and then releases those of this call.
        """
        before = len(self._held)
        kept = {path for path, handle in self._held if _is_at(handle, path)}
        try:
            for path in files:
                if path not in kept:
                    self._hold(path, is_dir=False)
            for path in folders:
                if path not in kept:
                    self._hold(path, is_dir=True)
        except OSError:
            self.release(before)
            raise

    def release(self, keep: int = 0) -> None:
        """Release all stubs but the first `keep`; the last holder removes those that are still untouched."""
        import fcntl

        while len(self._held) > keep:
            path, handle = self._held.pop()
            with suppress(OSError):
                # Fails while another command, of this or another process, holds it.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _take_away(path, handle)
            os.close(handle)

    def _hold(self, path: str, *, is_dir: bool) -> None:
        import fcntl

        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_REST_S)
            with suppress(FileExistsError):
                _make(path, is_dir=is_dir)
            try:
                with enter_parent(path) as (folder, name):
                    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError:
                _look(path)
                return
            if not _is_mark(os.fstat(handle), handle):
                os.close(handle)
                return
            with suppress(OSError):
                # Never block: a foreign program may keep the lock forever.
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_at(handle, path):
                    self._held.append((path, handle))
                    return
            # Its last user removed it between our open and our lock, or is about to.
            os.close(handle)
        raise OSError(errno.EBUSY, "another program keeps it locked", path)


class KeptStubs:
    """The stubs of one sandbox, kept for a moment after its last command.

    The next command is often near, and removing a directory takes milliseconds on some disks, so a timer does it.
    """

    def __init__(self, rest_s: float = STANDBY_S) -> None:
        self._rest_s = rest_s
        self._stubs = Stubs()
        self._lock = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None

    def hold(self, files: Sequence[str], folders: Sequence[str]) -> None:
        """Hold stubs for one command, which must call `let_go` once. Raises OSError."""
        with self._lock:
            self._stubs.hold(files, folders)
            self._users += 1
            self._stop_timer()

    def let_go(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._stubs.is_holding:
                self._timer = threading.Timer(self._rest_s, self._expire)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        with self._lock:
            self._stop_timer()
            self._stubs.release()

    def _expire(self) -> None:
        with self._lock:
            if not self._users:
                self._stubs.release()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def is_stub(path: str) -> bool:
    try:
        return _is_mark(os.lstat(path), path)
    except OSError:
        return False


def _make(path: str, *, is_dir: bool) -> None:
    with enter_parent(path) as (folder, name):
        if is_dir:
            os.mkdir(name, _MARK_MODE | 0o755, dir_fd=folder)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, _MARK_MODE | 0o644, dir_fd=folder))
        with suppress(FileNotFoundError):  # another command has used and removed it already
            os.utime(name, ns=(_MARK_NS, _MARK_NS), dir_fd=folder, follow_symlinks=False)


def _look(path: str) -> os.stat_result:
    with enter_parent(path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), _look(path))
    except OSError:
        return False


def _take_away(path: str, handle: int) -> None:
    """Remove a stub, or give it a normal mode if something was put into it."""
    if not _is_at(handle, path):
        return
    found = os.fstat(handle)
    is_dir = stat.S_ISDIR(found.st_mode)
    if _is_mark(found, handle):
        with suppress(OSError), enter_parent(path) as (folder, name):
            (os.rmdir if is_dir else os.unlink)(name, dir_fd=folder)
            return
    if found.st_mode & _MARK_MODE:
        os.fchmod(handle, stat.S_IMODE(found.st_mode) & ~_MARK_MODE)
        os.utime(handle)


def _is_mark(found: os.stat_result, where: str | int) -> bool:
    if not found.st_mode & _MARK_MODE and found.st_mtime_ns != _MARK_NS:
        return False
    # An archive can contain any mode and time, so anything with content never counts.
    if stat.S_ISREG(found.st_mode):
        return found.st_size == 0
    return stat.S_ISDIR(found.st_mode) and not os.listdir(where)

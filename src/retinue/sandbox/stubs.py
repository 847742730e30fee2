"""Empty nodes in the place of protected files that do not exist, while commands run, so that none can make them.

A mount needs something to be mounted on, so the node is on the disk for as long as somebody needs it. It is known by a
mode and a time that nothing else has; whoever uses it holds a shared lock, and the last one takes it away, also after a
crash of the one that made it. It MUST NOT go before: the kernel lifts a mount whose place is removed elsewhere.
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
"""A day after the beginning of time, as good as never the time of a real file."""
_MARK_MODE = stat.S_ISVTX
"""What a node has from its first moment, before it has its time: a neighbour may look at it just then."""
_TRIES, _REST_S = 100, 0.001
STANDBY_S = 0.5


class Stubs:
    """The nodes one command stands behind."""

    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def hold(self, files: Sequence[str], folders: Sequence[str]) -> None:
        """See to it that each path is there. What already is there, and real, is left alone.

        Raises OSError when one cannot be made; what was made for this is released then.
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
        """Let go; whoever is last removes what is still an untouched node of ours."""
        import fcntl

        while len(self._held) > keep:
            path, handle = self._held.pop()
            with suppress(OSError):
                # Fails while another command holds it, of this process or another.
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
                # Never wait for it: whoever is no neighbour of ours may keep it as long as it likes.
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_at(handle, path):
                    self._held.append((path, handle))
                    return
            # Its last user removed it between our opening and our lock, or is about to.
            os.close(handle)
        raise OSError(errno.EBUSY, "another program keeps it locked", path)


class Standby:
    """The nodes of one boundary, kept for a moment after its last command.

    The next command is often near, and some disks take milliseconds to remove a directory: that is done aside.
    """

    def __init__(self, rest_s: float = STANDBY_S) -> None:
        self._rest_s = rest_s
        self._stubs = Stubs()
        self._lock = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None

    def hold(self, files: Sequence[str], folders: Sequence[str]) -> None:
        """For one command, which lets go once. Raises OSError."""
        with self._lock:
            self._stubs.hold(files, folders)
            self._users += 1
            self._stop_timer()

    def let_go(self) -> None:
        """One command is done."""
        with self._lock:
            self._users -= 1
            if not self._users and self._stubs.is_holding:
                self._timer = threading.Timer(self._rest_s, self._expire)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """All are done."""
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
    """Whether a path is such a node."""
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
        with suppress(FileNotFoundError):  # a neighbour has used it and taken it away already
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
    """Remove a node, or give it the mode of a real one when somebody has put something into it."""
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
    # An archive can bring any mode and time along, so what has content never counts.
    if stat.S_ISREG(found.st_mode):
        return found.st_size == 0
    return stat.S_ISDIR(found.st_mode) and not os.listdir(where)

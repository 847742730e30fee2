"""Empty nodes in the place of protected files that do not exist, while commands run, so that none can make them.

A mount needs something to be mounted on, so the node is on the disk for as long as somebody needs it. It is known by a
time that nothing else has; whoever uses it holds a shared lock, and the last one takes it away, also after a crash of
the one that made it.
"""

import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress

_MARK_NS = 86_399_000_000_007
"""A day after the beginning of time, as good as never the time of a real file."""


class Stubs:
    """The nodes one command stands behind."""

    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []

    def hold(self, files: Sequence[str], folders: Sequence[str]) -> None:
        """See to it that each path is there. What already is there, and real, is left alone.

        Raises OSError when one cannot be made; what was made before is released then.
        """
        try:
            for path in files:
                self._hold(path, is_dir=False)
            for path in folders:
                self._hold(path, is_dir=True)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Let go; whoever is last removes what is still an untouched node of ours."""
        while self._held:
            path, handle = self._held.pop()
            with suppress(OSError):
                # Fails while another command holds it, of this process or another.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_mark(os.fstat(handle)) and os.path.samestat(os.fstat(handle), os.lstat(path)):
                    (os.rmdir if stat.S_ISDIR(os.fstat(handle).st_mode) else os.unlink)(path)
            os.close(handle)

    def _hold(self, path: str, *, is_dir: bool) -> None:
        for _ in range(8):
            with suppress(FileExistsError):
                _make(path, is_dir=is_dir)
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except OSError:
                if os.path.lexists(path):
                    return
                raise
            if not _is_mark(os.fstat(handle)):
                os.close(handle)
                return
            fcntl.flock(handle, fcntl.LOCK_SH)
            with suppress(OSError):
                if os.path.samestat(os.fstat(handle), os.lstat(path)):
                    self._held.append((path, handle))
                    return
            # Its last user removed it between our opening and our lock.
            os.close(handle)
        raise OSError(f"{path} comes and goes")


def is_stub(path: str) -> bool:
    """Whether a path is such a node."""
    try:
        return _is_mark(os.lstat(path))
    except OSError:
        return False


def _make(path: str, *, is_dir: bool) -> None:
    if is_dir:
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    os.utime(path, ns=(_MARK_NS, _MARK_NS), follow_symlinks=False)


def _is_mark(found: os.stat_result) -> bool:
    is_plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_size == 0)
    return is_plain and found.st_mtime_ns == _MARK_NS

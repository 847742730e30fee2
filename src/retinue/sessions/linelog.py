"""A log file of lines with a size limit, written by several processes and read by people.

Errors with the file never stop the program. Must not know the content of the lines.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.sessions.files import make_private

_TRIES, _PAUSE_S = 40, 0.005
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class LineLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_broken = False

    def append(self, *lines: bytes, most: int) -> None:
        """Append lines; above `most` bytes the older half of the file is dropped. MUST NOT raise."""
        if self._is_broken:
            return
        try:
            with self._hold() as descriptor:
                size = os.fstat(descriptor).st_size
                # Never continue a torn line.
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                data = b"".join(line + b"\n" for line in lines)
                os.write(descriptor, b"\n" + data if is_torn else data)
                if size + len(data) > most:
                    self._shrink(descriptor, most)
        except BlockingIOError:
            return  # another process holds the lock for long; the next append may succeed
        except OSError:
            self._is_broken = True

    def read(self, most: int) -> list[bytes]:
        """Return the last lines, at most `most` bytes; empty if there is no file."""
        try:
            return self._read_end(most).splitlines()
        except OSError:
            return []

    def _read_end(self, most: int) -> bytes:
        descriptor = os.open(self.path, os.O_RDONLY | _FLAGS)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return b""
            file.seek(max(0, status.st_size - most))
            return file.read(most)

    @contextmanager
    def _hold(self) -> Iterator[int]:
        """Open and lock the file. Raises OSError if the lock is not available soon."""
        for _ in range(_TRIES):
            descriptor = self._open()
            try:
                if self._is_ours(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)
            time.sleep(_PAUSE_S)
        raise BlockingIOError("another process has locked the log")

    def _is_ours(self, descriptor: int) -> bool:
        """Return whether the lock was taken and the file still has this name: another process may have replaced it."""
        own = os.fstat(descriptor)
        if not stat.S_ISREG(own.st_mode):
            raise OSError("the log is not a regular file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks: losing lines there is acceptable
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            make_private(self.path.parent)
            return os.open(self.path, flags, 0o600)

    def _shrink(self, descriptor: int, most: int) -> None:
        """Drop the older half; processes that wait for the lock of the old file then open the new one."""
        size = os.fstat(descriptor).st_size
        kept = os.pread(descriptor, most // 2, max(0, size - most // 2)).partition(b"\n")[2]
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        fresh.write_bytes(kept)
        fresh.chmod(0o600)
        fresh.replace(self.path)

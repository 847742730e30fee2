"""The Files port: the system calls of session storage, so that tests can make each of them fail.

Must not know what is stored.
"""

import os
from pathlib import Path


class Files:
    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open a descriptor that child processes do not inherit and that never blocks on a FIFO."""
        return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)

    def write(self, fd: int, data: bytes) -> int:
        """Make one write call, which may write only a part."""
        return os.write(fd, data)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Read bytes at an offset; fewer at the end of the file."""
        return os.pread(fd, length, offset)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Wait until the content is on disk."""
        os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        """Wait until a new name in a directory is on disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        try:
            os.mkdir(path, 0o700)
        except OSError:
            make_private(path)

    def unlink(self, path: Path) -> None:
        """Remove a name; a missing one is ignored."""
        path.unlink(missing_ok=True)

    def close(self, fd: int) -> None:
        os.close(fd)


class UnsyncedFiles(Files):
    """Files whose content is also stored elsewhere, so that syncing is unnecessary."""

    def sync(self, fd: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing."""


def make_private(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700, whatever the umask is."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)

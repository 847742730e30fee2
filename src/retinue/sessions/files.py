"""The Files port: the few system calls that session storage makes, so that tests can let each of them fail.

Must not know what is stored.
"""

import os
from pathlib import Path


class Files:
    """The real file system."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """A descriptor that child processes do not inherit and that never waits for a FIFO's other end."""
        return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)

    def write(self, fd: int, data: bytes) -> int:
        """One write call; may take less than all."""
        return os.write(fd, data)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Bytes at an offset; fewer at the end of the file."""
        return os.pread(fd, length, offset)

    def fstat(self, fd: int) -> os.stat_result:
        """Size, links and kind of an open file."""
        return os.fstat(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut an open file."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Wait until the content is on the disk."""
        os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        """Wait until a new name in a directory is on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, private to the user."""
        try:
            os.mkdir(path, 0o700)
        except OSError:
            make_private(path)

    def unlink(self, path: Path) -> None:
        """Remove a name; nothing happens when it is not there."""
        path.unlink(missing_ok=True)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        os.close(fd)


class FleetingFiles(Files):
    """Files whose content is also kept elsewhere: nobody waits for the disk."""

    def sync(self, fd: int) -> None:
        """Nothing to wait for."""

    def sync_directory(self, path: Path) -> None:
        """Nothing to wait for."""


def make_private(path: Path) -> None:
    """Create a directory and whatever is missing above it for this user alone, whatever the umask is."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)

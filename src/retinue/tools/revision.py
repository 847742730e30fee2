"""Which content a file had when it was looked at, without reading it again."""

import os

from msgspec import Struct


class Revision(Struct, frozen=True):
    """Changes whenever the content does."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Revision":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def find_real_path(handle: int, path: str) -> str:
    """The name of an open file with all links followed, where the system tells; else as the path says."""
    try:
        real = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return os.path.realpath(path)
    # What the kernel says of a file that has been removed or replaced meanwhile is no part of its name.
    return real if os.fstat(handle).st_nlink else real.removesuffix(" (deleted)")

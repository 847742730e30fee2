"""A lock between processes around one small file: an flock on a sidecar, which the kernel frees when its holder dies.

The sidecar is removed after use. Must not know what the file holds.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.05


@contextmanager
def hold_lock(name: str, *, folder: int, wait_s: float) -> Iterator[None]:
    """Hold the lock `name` in an open folder; raises TimeoutError when another process keeps it for so long."""
    descriptor = _take(name, folder, time.monotonic() + wait_s)
    try:
        # For people, and for programs that take the file itself for the lock.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        # Removed while it is still held: whoever waits for this very file sees that it has no name any more.
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        os.close(descriptor)


def _take(name: str, folder: int, deadline_s: float) -> int:
    pause_s = _PAUSE_S
    while True:
        descriptor = os.open(name, _FLAGS, 0o600, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(descriptor, name, folder):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                os.close(descriptor)
                raise TimeoutError(name) from None
            time.sleep(min(pause_s, max(0.0, deadline_s - time.monotonic())))
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_current(descriptor: int, name: str, folder: int) -> bool:
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)

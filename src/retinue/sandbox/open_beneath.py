"""Open a directory below another one without following any link, even one created concurrently.

Uses `openat2` if the kernel has it, else one step per component. All changes in places where agents can write MUST go
through this module. Must not know permissions.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_SYSCALL = 437
"""The number of openat2, the same on every architecture that has it."""
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_PASSES = 10


def open_beneath(root: str, folder: str, *, make: bool = False) -> int:
    """Return a descriptor of `root/folder`; `folder` is relative, without `..` or links. Raises OSError.

    With `make`, missing directories are created.
    """
    top = os.open(root, _FOLDER | os.O_NOFOLLOW)
    try:
        return open_below(top, folder, make=make)
    finally:
        os.close(top)


def open_below(top: int, folder: str, *, make: bool = False) -> int:
    """Like `open_beneath`, but below an open directory."""
    if not folder:
        return os.dup(top)
    try:
        handle = _ask_kernel(top, folder)
        return _walk(top, folder, make=make) if handle is None else handle
    except FileNotFoundError:
        if not make:
            raise
        return _walk(top, folder, make=True)


@contextmanager
def enter_parent(path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the parent of an absolute path without `..`; yields it and the last name. Raises OSError for links."""
    folder, name = os.path.split(path)
    handle = open_beneath("/", folder.strip("/"), make=make)
    try:
        yield handle, name
    finally:
        os.close(handle)


def remove_file(path: str) -> None:
    """Remove a file or a link; no parent may be a link. Raises OSError, except if the path does not exist."""
    with suppress(FileNotFoundError), enter_parent(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_tree(path: str) -> None:
    """Remove a directory that may still be written to or lacks permissions; no parent may be a link. Raises OSError."""
    failures: list[BaseException] = []
    with enter_parent(path) as (folder, name):

        def unlock(function: object, inner: str, error: tuple[type, BaseException, object]) -> None:
            failures.append(error[1])
            with suppress(OSError):
                _unlock(folder, inner)

        for _ in range(_PASSES):
            failures.clear()
            shutil.rmtree(name, dir_fd=folder, onerror=unlock)
            if not failures or (isinstance(failures[0], FileNotFoundError) and not os.path.lexists(path)):
                return
    raise failures[0]


def _unlock(top: int, path: str) -> None:
    """Give the owner all rights on a directory and its parent, except on `top`."""
    for each in (os.path.dirname(path), path):
        if each:
            handle = open_below(top, each)
            _chmod(handle)
            os.close(handle)


def _chmod(handle: int) -> None:
    # The kernel refuses fchmod on O_PATH descriptors.
    os.chmod(f"/proc/self/fd/{handle}" if hasattr(os, "O_PATH") else handle, 0o700)


def _ask_kernel(top: int, folder: str) -> int | None:
    call = _find_openat2()
    if call is None:
        return None
    handle, error = call(top, os.fsencode(folder))
    if handle >= 0:
        return int(handle)
    # A container may forbid the call itself; then walk the path step by step.
    if error in (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN):
        return None
    raise OSError(error, os.strerror(error), folder)


@cache
def _find_openat2() -> Any:
    if not hasattr(os, "O_PATH"):
        return None
    import ctypes  # slow import, needed only for writes

    class How(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    how = How(_FOLDER, 0, _NO_MAGIC_LINKS | _NO_LINKS | _BENEATH)

    def call(top: int, folder: bytes) -> tuple[int, int]:
        handle = syscall(_SYSCALL, top, ctypes.c_char_p(folder), ctypes.byref(how), ctypes.sizeof(how))
        return handle, ctypes.get_errno()

    return call


def _walk(top: int, folder: str, *, make: bool) -> int:
    handle = os.dup(top)
    try:
        for name in folder.split("/"):
            if name in ("", ".", ".."):
                raise OSError(errno.EINVAL, "not a plain path", folder)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            deeper = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = deeper
    except BaseException:
        os.close(handle)
        raise
    return handle

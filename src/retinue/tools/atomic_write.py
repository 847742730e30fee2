"""Replaces the content of a file atomically: readers see the old content or the new content, never a mixture.

All functions block. Call them in a thread if there is much data.
"""

import errno
import os
import stat
from contextlib import suppress

from msgspec import Struct

from retinue.core.errors import ToolRetry, quote
from retinue.core.launch import ANYWHERE, Territory
from retinue.tools.path_guard import open_parent
from retinue.tools.paths import Revision, name_kind

_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_access")


class Replaced(Struct, frozen=True):
    """The result of replacing a file."""

    created: bool
    path: str
    """The real path, with symbolic links followed."""
    other_names: int = 0
    """The number of hard links that still have the old content."""
    revision: Revision | None = None
    """The revision of the new content; None if the file disappeared right after it was replaced."""


def replace_file(
    path: str,
    data: bytes,
    *,
    expected: Revision | None = None,
    sync: bool = False,
    territory: Territory = ANYWHERE,
    make_folders: bool = False,
) -> Replaced:
    """Write a file through a temporary file in the same directory, keeping mode, owner and extended attributes.

    Raises OSError (the old file is then intact), ToolRetry if the file is no longer at revision `expected`, and
    ToolFailed if the path is outside the territory.
    """
    folder, name, target = open_parent(path, path, territory, make=make_folders)
    try:
        old = _look(folder, name)
        if old is not None:
            _check_writable(folder, name, path, old)
        temporary = f".retinue-{os.urandom(8).hex()}.tmp"
        # A new file gets its mode from the umask; an existing file's mode is set before the rename makes it visible.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=folder)
        try:
            try:
                _write_all(handle, data)
                if old is not None:
                    _copy_identity(handle, f"/proc/self/fd/{folder}/{name}", old)
                if sync:
                    os.fsync(handle)
            finally:
                os.close(handle)
            _check_unchanged(folder, name, path, expected)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        new = _look(folder, name)
    finally:
        os.close(folder)
    revision = None if new is None else Revision.of(new)
    return Replaced(old is None, target, 0 if old is None else old.st_nlink - 1, revision)


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_writable(folder: int, name: str, path: str, old: os.stat_result) -> None:
    if stat.S_ISLNK(old.st_mode):  # all links were followed, so it is broken or was just created
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if not stat.S_ISREG(old.st_mode):
        raise ToolRetry(f"{quote(path, 200)} is {name_kind(old.st_mode)}: expected a regular file.")
    # Renaming needs no write permission on the file itself, so read-only files are refused here.
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise PermissionError(errno.EACCES, "the file is read-only", path)


def _check_unchanged(folder: int, name: str, path: str, expected: Revision | None) -> None:
    if expected is None:
        return
    now = _look(folder, name)
    if now is None or Revision.of(now) != expected:
        raise ToolRetry(
            f"{quote(path, 200)} was changed by somebody else during this call; nothing was written. "
            "Read it again and repeat the edit."
        )


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _copy_identity(handle: int, source: str, old: os.stat_result) -> None:
    ours = os.fstat(handle)
    if ours.st_gid != old.st_gid:
        with suppress(OSError):
            os.fchown(handle, -1, old.st_gid)
    if ours.st_uid != old.st_uid:
        with suppress(OSError):
            os.fchown(handle, old.st_uid, -1)
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(source, follow_symlinks=False):
                if name.startswith(_KEPT_ATTRIBUTES):
                    os.setxattr(handle, name, os.getxattr(source, name, follow_symlinks=False))
    # Last, because changing the owner clears the set-id bits.
    os.fchmod(handle, stat.S_IMODE(old.st_mode))

"""Replaces the content of a file in one step: readers see the old content or the new one, never a half.

Everything here blocks; whoever calls it with much data does so in a thread.
"""

import errno
import os
import secrets
import stat
from contextlib import suppress

from msgspec import Struct

from retinue.core.errors import ToolRetry, quote
from retinue.tools.paths import name_kind
from retinue.tools.revision import Revision

_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_access")


class Replaced(Struct, frozen=True):
    """What replacing a file did beside changing its content."""

    created: bool
    path: str
    """The file itself, links followed."""
    other_names: int = 0
    """Hard links that still have the old content."""
    revision: Revision | None = None
    """Of the new content; None when it was replaced again at once."""


def replace_file(path: str, data: bytes, *, expected: Revision | None = None, sync: bool = False) -> Replaced:
    """Write a file through a temporary one beside it, keeping mode, owner and attributes.

    Raises OSError with the old file intact, or ToolRetry when the file is not `expected` any more.
    """
    target = os.path.realpath(path)
    try:
        old: os.stat_result | None = os.stat(path)
    except FileNotFoundError:
        old = None
    if old is not None:
        _check_writable(path, old)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".retinue-{secrets.token_hex(8)}.tmp")
    # A new file gets the mode the umask gives; an old one's is set before anybody can open it under its name.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(temporary, flags, 0o666 if old is None else 0o600)
    try:
        try:
            _write_all(handle, data)
            if old is not None:
                _copy_identity(handle, target, old)
            if sync:
                os.fsync(handle)
        finally:
            os.close(handle)
        _check_unchanged(path, expected)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    try:
        revision = Revision.of(os.stat(target))
    except OSError:
        revision = None
    return Replaced(old is None, target, 0 if old is None else old.st_nlink - 1, revision)


def _check_writable(path: str, old: os.stat_result) -> None:
    if not stat.S_ISREG(old.st_mode):
        raise ToolRetry(f"{quote(path, 200)} is {name_kind(old.st_mode)}: expected a regular file.")
    # Renaming needs no right on the file itself, so a read-only file must be refused here.
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", path)


def _check_unchanged(path: str, expected: Revision | None) -> None:
    if expected is None:
        return
    try:
        now = Revision.of(os.stat(path))
    except FileNotFoundError:
        now = None
    if now != expected:
        raise ToolRetry(
            f"{quote(path, 200)} was changed by somebody else during this call; nothing was written. "
            "Read it again and repeat the edit."
        )


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _copy_identity(handle: int, target: str, old: os.stat_result) -> None:
    ours = os.fstat(handle)
    if ours.st_gid != old.st_gid:
        with suppress(OSError):
            os.fchown(handle, -1, old.st_gid)
    if ours.st_uid != old.st_uid:
        with suppress(OSError):
            os.fchown(handle, old.st_uid, -1)
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(target):
                if name.startswith(_KEPT_ATTRIBUTES):
                    os.setxattr(handle, name, os.getxattr(target, name))
    # Last, because changing the owner clears the set-id bits.
    os.fchmod(handle, stat.S_IMODE(old.st_mode))

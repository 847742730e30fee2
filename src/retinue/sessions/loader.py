"""Opening a session file: what may be written, what is in it, and how its end is mended.

Nothing before the end is ever changed. Must not know entries beyond their being lines.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from retinue.core.errors import SessionError, SessionNotFound, quote
from retinue.sessions.files import Files
from retinue.sessions.scan import Scan, scan_file
from retinue.sessions.store import FileStore, Store
from retinue.sessions.tree import SessionTree


def open_descriptor(path: Path, tree: SessionTree, reason: str) -> str:
    """Open a session file. Returns why it can only be read; empty when it can be written, too."""
    try:
        flags = os.O_RDONLY if reason else os.O_RDWR | os.O_APPEND
        fd = tree.descriptor(path, flags)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP):
            raise SessionNotFound(f"there is no session file {quote(str(path), 300)}") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and not reason:
            return open_descriptor(path, tree, f"the file cannot be written ({error.strerror})")
        if error.errno not in (errno.EISDIR, errno.ENXIO):
            raise SessionError(f"cannot open session {path}: {error.strerror}") from error
        raise SessionError(f"{path} is not a session file: it is a directory or a socket") from None
    except ValueError:
        raise SessionNotFound(f"there is no session file {quote(str(path), 300)}") from None
    mode = tree.files.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
        raise SessionError(f"{path} is not a session file: it is {kind}")
    return reason


def scan_session(path: Path, tree: SessionTree) -> Scan:
    """Read an open session file once, or raise SessionError when it is no such file."""
    files = tree.files
    fd = tree.descriptor(path)
    try:
        scan = scan_file(lambda length, offset: files.pread(fd, length, offset))
    except OSError as error:
        raise SessionError(f"cannot read session {path}: {error.strerror}") from error
    if scan.size and not scan.looks_like_session:
        raise SessionError(f"{path} is not a session file: none of its lines is a session entry; it was left unchanged")
    return scan


def mend_tail(path: Path, tree: SessionTree, scan: Scan) -> Store:
    """Move a torn end to the side file and end the last line, so that the next append begins a line of its own."""
    files = tree.files
    fd = tree.descriptor(path)
    # A full or failing disk must not keep anybody from reading.
    with suppress(OSError):
        if scan.keep_bytes < scan.size:
            _save_tail(path, files, fd, scan)
            files.truncate(fd, scan.keep_bytes)
        if scan.is_unended:
            files.write(fd, b"\n")
    return FileStore(path, tree)


def _save_tail(path: Path, files: Files, fd: int, scan: Scan) -> None:
    if not scan.damage.torn_bytes:
        return
    side = path.with_name(path.name + ".damaged")
    torn = files.pread(fd, scan.damage.torn_bytes, scan.keep_bytes) + b"\n"
    out = files.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
    try:
        if files.write(out, torn) != len(torn):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        files.sync(out)
    finally:
        files.close(out)
    scan.damage.saved_to = side.name

"""Storage of session lines in a file or in memory: append, read, and repair of a torn end.

An append happens completely or not at all. Must not know what a line means.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from retinue.core.errors import SessionError, SessionNotFound, SessionUnsaved, quote
from retinue.sessions.files import Files
from retinue.sessions.scan import Scan, scan_file
from retinue.sessions.tree import SessionTree


class LineStore(Protocol):
    """Append-only storage of lines."""

    def append(self, data: bytes, *, sync: bool, waits: bool = False) -> int:
        """Add whole lines and return the offset of the first. Raises SessionUnsaved with nothing added.

        With `waits`, a missing file is not created; the lines are written by the first append without it.
        """
        ...

    def read(self, offset: int, length: int) -> bytes: ...

    def close(self) -> None: ...


class MemoryStore:
    """Lines of a session that is not stored."""

    def __init__(self) -> None:
        self._data = bytearray()

    def append(self, data: bytes, *, sync: bool, waits: bool = False) -> int:
        """Add lines; `sync` and `waits` have no effect."""
        offset = len(self._data)
        self._data += data
        return offset

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])

    def close(self) -> None:
        """Do nothing."""


class FileStore:
    """Lines in a session file, which the first append without `waits` creates."""

    def __init__(self, path: Path, tree: SessionTree, *, is_made: bool = True, read_only: bool = False) -> None:
        self._path = path
        self._tree = tree
        self._is_made = is_made
        self._size: int | None = None
        """Where the last append ended; None before the first."""
        self._flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND
        self._is_named_on_disk = is_made
        self._held = b""
        """Lines that wait for the file to be created."""

    def append(self, data: bytes, *, sync: bool, waits: bool = False) -> int:
        """Write complete lines, preceded by waiting ones, in one call; `sync` waits for the disk."""
        if waits and not self._is_made:
            self._held += data
            return len(self._held) - len(data)
        lines = self._held + data
        end = self._extend(lines, sync=sync) if self._is_made else self._make(lines, sync=sync)
        self._held = b""
        return end - len(data)

    def read(self, offset: int, length: int) -> bytes:
        if not self._is_made:
            return self._held[offset : offset + length]
        try:
            return self._tree.files.pread(self._tree.descriptor(self._path, self._flags), length, offset)
        except OSError as error:
            raise SessionError(f"cannot read session {self._path}: {error.strerror}") from error

    def close(self) -> None:
        self._tree.forget(self._path)

    def _extend(self, data: bytes, *, sync: bool) -> int:
        files = self._tree.files
        try:
            fd = self._tree.descriptor(self._path)
            info = files.fstat(fd)
            if info.st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "the file was deleted")
            start = info.st_size
            # Another program has written, or a failed append could not be truncated: never continue that line.
            is_unended = start not in (0, self._size) and files.pread(fd, 1, start - 1) != b"\n"
        except OSError as error:
            raise self._unsaved(error) from error
        payload = b"\n" + data if is_unended else data
        try:
            if files.write(fd, payload) != len(payload):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                self._sync(fd)
        except OSError as error:
            self._roll_back(fd, start, payload)
            raise self._unsaved(error) from error
        self._tree.touch()
        self._size = start + len(payload)
        return self._size

    def _make(self, data: bytes, *, sync: bool) -> int:
        files = self._tree.files
        try:
            files.make_directory(self._path.parent)
            fd = self._tree.descriptor(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        except OSError as error:
            raise self._unsaved(error) from error
        try:
            if self._tree.main in (None, self._path) and not self._tree.is_locked:
                self._tree.lock(self._path)
            if files.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                self._sync(fd)
        except OSError as error:
            self._unmake(fd, data)
            raise self._unsaved(error) from error
        self._is_made = True
        self._size = len(data)
        return self._size

    def _unmake(self, fd: int, data: bytes) -> None:
        # Unlink first: an empty file would look like a session, while a removed one can be created again.
        try:
            self._tree.files.unlink(self._path)
        except OSError:
            self._is_made = True
            self._roll_back(fd, 0, data)
            return
        self._tree.forget(self._path)
        if self._tree.main == self._path:
            self._tree.unlock()

    def _sync(self, fd: int) -> None:
        self._tree.files.sync(fd)
        if not self._is_named_on_disk:
            self._tree.files.sync_directory(self._path.parent)
            self._is_named_on_disk = True

    def _roll_back(self, fd: int, start: int, payload: bytes) -> None:
        files = self._tree.files
        try:
            grown = files.fstat(fd).st_size - start
            # Truncate only bytes that are surely ours: another program may have written meanwhile.
            if 0 < grown <= len(payload) and files.pread(fd, grown, start) == payload[:grown]:
                files.truncate(fd, start)
        except OSError:
            # The next append treats the rest like a line of another program.
            return

    def _unsaved(self, error: OSError) -> SessionUnsaved:
        reason = error.strerror or type(error).__name__
        return SessionUnsaved(f"cannot save to session {self._path}: {reason}; what follows is not on disk")


def open_descriptor(path: Path, tree: SessionTree, reason: str) -> str:
    """Open a session file. Returns why it is read-only, or an empty string. Raises SessionNotFound."""
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
    """Scan an open session file. Raises SessionError if it is not a session."""
    files = tree.files
    fd = tree.descriptor(path)
    try:
        scan = scan_file(lambda length, offset: files.pread(fd, length, offset))
    except OSError as error:
        raise SessionError(f"cannot read session {path}: {error.strerror}") from error
    if scan.size and not scan.looks_like_session:
        raise SessionError(f"{path} is not a session file: none of its lines is a session entry; it was left unchanged")
    return scan


def mend_tail(path: Path, tree: SessionTree, scan: Scan) -> LineStore:
    """Move a torn end to the side file and terminate the last line, so that the next append begins a new line."""
    files = tree.files
    fd = tree.descriptor(path)
    # A full or failing disk must not prevent reading.
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

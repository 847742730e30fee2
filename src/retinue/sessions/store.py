"""Where the lines of one session are kept: a file that only grows, or memory.

An append happens whole or not at all. Must not know what a line says.
"""

import errno
import os
from pathlib import Path
from typing import Protocol

from retinue.core.errors import SessionError, SessionUnsaved
from retinue.sessions.tree import SessionTree


class Store(Protocol):
    """Lines that only grow."""

    def append(self, data: bytes, *, sync: bool, waits: bool = False) -> int:
        """Add whole lines and return the offset they begin at, or raise SessionUnsaved with nothing added.

        What `waits` is not a reason to make a file: it is written with the first thing that is one.
        """
        ...

    def read(self, offset: int, length: int) -> bytes: ...

    def close(self) -> None: ...


class MemoryStore:
    """Lines of a session that is not kept."""

    def __init__(self) -> None:
        self._data = bytearray()

    def append(self, data: bytes, *, sync: bool, waits: bool = False) -> int:
        """Add lines; `sync` and `waits` have nothing to do."""
        offset = len(self._data)
        self._data += data
        return offset

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset."""
        return bytes(self._data[offset : offset + length])

    def close(self) -> None:
        """Nothing is open."""


class FileStore:
    """Lines in a session file. The file comes into being with the first append that does not wait."""

    def __init__(self, path: Path, tree: SessionTree, *, is_made: bool = True, read_only: bool = False) -> None:
        self._path = path
        self._tree = tree
        self._is_made = is_made
        self._size: int | None = None
        """Where the last append ended; None before the first."""
        self._flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND
        self._is_named_on_disk = is_made
        self._held = b""
        """Lines that wait for the file."""

    def append(self, data: bytes, *, sync: bool, waits: bool = False) -> int:
        """One write of complete lines, with those that have waited; `sync` waits for the disk."""
        if waits and not self._is_made:
            self._held += data
            return len(self._held) - len(data)
        lines = self._held + data
        end = self._extend(lines, sync=sync) if self._is_made else self._make(lines, sync=sync)
        self._held = b""
        return end - len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset."""
        if not self._is_made:
            return self._held[offset : offset + length]
        try:
            return self._tree.files.pread(self._tree.descriptor(self._path, self._flags), length, offset)
        except OSError as error:
            raise SessionError(f"cannot read session {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Give the descriptor back."""
        self._tree.forget(self._path)

    def _extend(self, data: bytes, *, sync: bool) -> int:
        files = self._tree.files
        try:
            fd = self._tree.descriptor(self._path)
            info = files.fstat(fd)
            if info.st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "the file was deleted")
            start = info.st_size
            # Another program wrote behind our back, or our own end could not be cut off: never continue its line.
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
        # The name goes first: an empty file would look like a session, a removed one can be made again.
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
            # Only what is surely ours is cut: another program may have written in between.
            if 0 < grown <= len(payload) and files.pread(fd, grown, start) == payload[:grown]:
                files.truncate(fd, start)
        except OSError:
            # What cannot be cut off now is met as a stranger's line by the next append.
            return

    def _unsaved(self, error: OSError) -> SessionUnsaved:
        reason = error.strerror or type(error).__name__
        return SessionUnsaved(f"cannot save to session {self._path}: {reason}; what follows is not on disk")

"""A main session with all its children's: its lock, its file descriptors, and deleting all of them.

A thousand children need neither a thousand locks nor a thousand descriptors: the main session's lock stands for the
tree, and descriptors are opened on use and the longest unused one closed. Must not know entries.
"""

import errno
import os
import shutil
from collections import OrderedDict
from pathlib import Path

from retinue.core.errors import SessionError, SessionNotFound, quote
from retinue.sessions.files import Files
from retinue.sessions.lock import Lock

MAX_DESCRIPTORS = 128
_TOO_MANY = {errno.EMFILE, errno.ENFILE}


class SessionTree:
    """Owner of the lock and the descriptors. Close it after its sessions."""

    def __init__(self, files: Files | None = None, *, max_descriptors: int = MAX_DESCRIPTORS) -> None:
        self.files = files or Files()
        self.max_descriptors = max_descriptors
        self.main: Path | None = None
        """The session file whose lock is held."""
        self._folder: tuple[Path, Path] | None = None
        """Of which main session, and where what is below it lies."""
        self._lock: Lock | None = None
        self._lock_fd: int | None = None
        self._open: OrderedDict[Path, int] = OrderedDict()

    @property
    def is_locked(self) -> bool:
        """Whether the main session's lock is held."""
        return self._lock is not None

    @property
    def warning(self) -> str:
        """One line for people when the file system has no locks; else empty."""
        if self._lock is None or not self._lock.exclusive_note:
            return ""
        return f"{self._lock.path.parent} has no file locks: do not write this session from two machines at once"

    def lock(self, path: Path) -> None:
        """Lock a main session's file for the life of the tree, or raise SessionLocked."""
        fd = self.files.open(path, os.O_RDONLY)
        try:
            self._lock = Lock.take(path, fd, self.files)
        except BaseException:
            self.files.close(fd)
            raise
        self._lock_fd = fd
        self.main = path

    def touch(self) -> None:
        """Keep the lock alive where that takes work."""
        if self._lock is not None and self._lock.exclusive_note:
            self._lock.touch()

    def descriptor(self, path: Path, flags: int = os.O_RDWR | os.O_APPEND) -> int:
        """An open descriptor of a session file, valid until the next call."""
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        while len(self._open) >= self.max_descriptors:
            self.files.close(self._open.popitem(last=False)[1])
        try:
            fd = self.files.open(path, flags)
        except OSError as error:
            if error.errno not in _TOO_MANY or not self._open:
                raise
            self._close_descriptors()
            fd = self.files.open(path, flags)
        self._open[path] = fd
        return fd

    def forget(self, path: Path) -> None:
        """Close a session's descriptor, if it is open."""
        fd = self._open.pop(path, None)
        if fd is not None:
            self.files.close(fd)

    def child_path(self, run_id: str) -> Path | None:
        """Where the session of a run below the main session lies; None when the main session is in memory."""
        if self.main is None:
            return None
        # Hundreds may be asked for at once, and splitting a path again and again takes longer than all the rest.
        if self._folder is None or self._folder[0] is not self.main:
            self._folder = self.main, Path(os.path.splitext(self.main)[0])
        return self._folder[1].joinpath(run_id, "session.jsonl")

    def close(self) -> None:
        """Close all descriptors and free the lock."""
        self._close_descriptors()
        self.unlock()

    def unlock(self) -> None:
        """Free the lock alone."""
        if self._lock is not None:
            self._lock.release(self.files)
            self._lock = None
        if self._lock_fd is not None:
            self.files.close(self._lock_fd)
            self._lock_fd = None

    def _close_descriptors(self) -> None:
        while self._open:
            self.files.close(self._open.popitem()[1])


def find_main(path: Path) -> Path:
    """The file whose lock protects a session: for a child's session the main one beside its directory."""
    folder = path.parent.parent
    main = folder.parent / f"{folder.name}.jsonl"
    return main if path.name == "session.jsonl" and folder.name and main.is_file() else path


def delete_session(path: Path) -> None:
    """Remove a main session and its children. Raises SessionLocked while somebody writes it, or SessionError."""
    if not path.is_file():
        raise SessionNotFound(f"there is no session {quote(str(path), 300)}")
    tree = SessionTree()
    tree.lock(path)
    try:
        # The children first: what is left after a crash in between is still listed, and can be deleted again.
        folder = path.with_suffix("")
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        path.unlink()
    except OSError as error:
        raise SessionError(f"{path}: cannot be deleted: {(error.strerror or str(error)).lower()}") from None
    finally:
        tree.close()

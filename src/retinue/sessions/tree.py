"""A main session with the sessions of its children: one lock, shared file descriptors, deletion.

A thousand children need neither a thousand locks nor a thousand descriptors: the main session's lock protects all, and
the least recently used descriptor is closed. Must not know entries.
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
        """Cache: a main session file and the folder of its children."""
        self._lock: Lock | None = None
        self._lock_fd: int | None = None
        self._open: OrderedDict[Path, int] = OrderedDict()

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    @property
    def warning(self) -> str:
        """A warning for the user if the file system has no locks; else empty."""
        if self._lock is None or not self._lock.exclusive_note:
            return ""
        return f"{self._lock.path.parent} has no file locks: do not write this session from two machines at once"

    def lock(self, path: Path) -> None:
        """Lock a main session's file until the tree is closed. Raises SessionLocked."""
        fd = self.files.open(path, os.O_RDONLY)
        try:
            self._lock = Lock.take(path, fd, self.files)
        except BaseException:
            self.files.close(fd)
            raise
        self._lock_fd = fd
        self.main = path

    def touch(self) -> None:
        """Refresh a lock that expires otherwise (file systems without flock)."""
        if self._lock is not None and self._lock.exclusive_note:
            self._lock.touch()

    def descriptor(self, path: Path, flags: int = os.O_RDWR | os.O_APPEND) -> int:
        """Return an open descriptor of a session file, valid until the next call."""
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
        """Return the session path of a run below the main session; None if the main session is in memory."""
        if self.main is None:
            return None
        # Cached: hundreds of paths may be requested at once, and splitting a path dominates the cost.
        if self._folder is None or self._folder[0] is not self.main:
            self._folder = self.main, Path(os.path.splitext(self.main)[0])
        return self._folder[1].joinpath(run_id, "session.jsonl")

    def close(self) -> None:
        self._close_descriptors()
        self.unlock()

    def unlock(self) -> None:
        """Free the lock but keep the descriptors."""
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
    """Return the file whose lock protects a session: for a child's session, the main session's."""
    folder = path.parent.parent
    main = folder.parent / f"{folder.name}.jsonl"
    return main if path.name == "session.jsonl" and folder.name and main.is_file() else path


def delete_session(path: Path) -> None:
    """Delete a main session and its children. Raises SessionLocked if a process writes it, or SessionError."""
    if not path.is_file():
        raise SessionNotFound(f"there is no session {quote(str(path), 300)}")
    tree = SessionTree()
    tree.lock(path)
    try:
        # Children first: after a crash in between, the session is still listed and can be deleted again.
        folder = path.with_suffix("")
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        path.unlink()
    except OSError as error:
        raise SessionError(f"{path}: cannot be deleted: {(error.strerror or str(error)).lower()}") from None
    finally:
        tree.close()

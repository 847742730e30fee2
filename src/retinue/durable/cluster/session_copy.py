"""Session files of runs on other machines: read before sending, written here when the runs end.

A session that is being written is locked, wherever that happens. It may be in a folder that agents can write, so links
are never followed. Must not know entries.
"""

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from retinue.core.errors import RetinueError, SessionError, quote
from retinue.core.pattern import late_pattern
from retinue.sessions.tree import SessionTree

USUAL = "session.jsonl"
"""File name of a session without a name of its own."""
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_HEAD = 64 * 1024


class SenderSession:
    """The session file of a run on the sender."""

    def __init__(self, path: str, *, is_shared: bool) -> None:
        """`path`: empty for none; `is_shared`: other runs may be asked to continue it."""
        self._path = Path(path) if path else None
        self._is_shared = is_shared
        self._folder = os.path.realpath(Path(path).parent) if path else ""
        """The real folder at the start, so that a link made later has no effect."""

    @property
    def name(self) -> str:
        """The name among the run's files; another attempt may use another one."""
        return self._path.name if self._path is not None and self._path.suffix == ".jsonl" else USUAL

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the file. Raises SessionLocked, or SessionError if it cannot be opened."""
        if self._path is None or not self._is_shared:
            yield
            return
        tree = SessionTree()
        try:
            os.close(self._open(os.O_RDWR | os.O_CREAT))
            tree.lock(self._path)
        except OSError as error:
            raise SessionError(f"cannot open session {self._path}: {error.strerror}") from error
        try:
            yield
        finally:
            with suppress(OSError):
                if not self._path.stat().st_size:
                    self._path.unlink()
            tree.close()

    def read(self) -> bytes:
        """Return what earlier runs have written: whole lines only."""
        data = self._read(-1)
        return data[: data.rfind(b"\n") + 1]

    def read_head(self) -> bytes:
        """Return the first line; empty if it cannot be read."""
        try:
            return self._read(_MAX_HEAD).partition(b"\n")[0]
        except SessionError:
            return b""

    def write(self, data: bytes) -> str:
        """Write the session and return its path; empty if there is no content. Raises SessionError."""
        if self._path is None or not data:
            return ""
        name, part = self._path.name, f".{secrets.token_hex(8)}.part"
        try:
            folder = self._enter(create=True)
            try:
                handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=folder)
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(part, dir_fd=folder)
                raise
            finally:
                os.close(folder)
        except OSError as error:
            raise SessionError(f"cannot write session {self._path}: {error.strerror}") from error
        return str(self._path)

    def _read(self, most: int) -> bytes:
        if self._path is None:
            return b""
        try:
            with os.fdopen(self._open(os.O_RDONLY), "rb") as file:
                return file.read(most)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise SessionError(f"cannot read session {self._path}: {error.strerror}") from error

    def _open(self, flags: int) -> int:
        """Open the file itself, never the target of a link. Raises OSError."""
        assert self._path is not None
        folder = self._enter(create=bool(flags & os.O_CREAT))
        try:
            handle = os.open(self._path.name, flags | _FILE, 0o600, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a link") from error
            raise
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is not a regular file")
        return handle

    def _enter(self, *, create: bool) -> int:
        """Open its folder one component at a time, so that no link is followed. Raises OSError or SessionError."""
        handle = os.open(os.path.sep, _STEP)
        try:
            for name in Path(self._folder).parts[1:]:
                if create:
                    _make(name, handle)
                below = os.open(name, _STEP, dir_fd=handle)
                os.close(handle)
                handle = below
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                where = quote(self._folder, 200)
                text = f"the session's folder {where} is now a link or inside one; replace the link with a real folder"
                raise SessionError(text) from error
            raise
        return handle


def _make(name: str, above: int) -> None:
    """Create a folder with mode 0700 if there is nothing."""
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)


Find = Callable[[str], Path | None]
"""Returns where the session of a child is stored; None if the child is unknown or stores none."""
_ID = late_pattern(r"[A-Za-z0-9_-]{1,64}")


def collect_files(pieces: Iterable[tuple[str, int, bytes]], session: str) -> dict[str, bytes]:
    """Return the recorded sessions of a session's children by run id; one with a gap is left out."""
    folder, found, broken = PurePosixPath(session).stem, dict[str, bytearray](), set[str]()
    for path, place, data in pieces:
        parts = path.split("/")
        if len(parts) != 3 or (parts[0], parts[2]) != (folder, USUAL) or not _ID.fullmatch(parts[1]):
            continue
        kept = found.setdefault(parts[1], bytearray())
        if place > len(kept):
            broken.add(parts[1])
        kept[place : place + len(data)] = data
    return {run_id: bytes(kept) for run_id, kept in found.items() if run_id not in broken}


async def bring_files(pieces: Iterable[tuple[str, int, bytes]], session: str, find: Find) -> list[str]:
    """Write the children's sessions; returns the problems, which do not affect the outcome of a run."""
    problems = []
    for run_id, data in collect_files(pieces, session).items():
        if (path := find(run_id)) is None:
            continue
        try:
            await asyncio.to_thread(_write, path, data)
        except (OSError, RetinueError) as error:
            problems.append(f"the session of run {run_id} could not be stored here: {error}")
    return problems


def _write(path: Path, data: bytes) -> None:
    # Only we create this folder, so a link in its place is an attack.
    if path.parent.is_symlink():
        raise SessionError(f"{quote(str(path.parent), 200)} is a link")
    SenderSession(str(path), is_shared=False).write(data)

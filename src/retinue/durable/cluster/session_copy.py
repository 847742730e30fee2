"""The session files of runs that work elsewhere: read before they are sent, written here when they end.

Nobody else may go on with a session that is being written, wherever that happens. It may lie where agents write, who
could put a link in its place meanwhile: none is followed. Must not know entries.
"""

import asyncio
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from retinue.core.errors import RetinueError, SessionError, quote
from retinue.sessions.tree import SessionTree

USUAL = "session.jsonl"
"""The name of a session that has none of its own."""
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_HEAD = 64 * 1024


class HomeFile:
    """Where one run has its session at home."""

    def __init__(self, path: str, *, is_shared: bool) -> None:
        """`path`: empty for nowhere; `is_shared`: other runs may be asked to go on with it."""
        self._path = Path(path) if path else None
        self._is_shared = is_shared
        self._folder = os.path.realpath(Path(path).parent) if path else ""
        """Where it is meant to be, whoever makes a link of it later."""

    @property
    def name(self) -> str:
        """What it is called among the files of the run: another attempt may begin another one."""
        return self._path.name if self._path is not None and self._path.suffix == ".jsonl" else USUAL

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep others from it. Raises SessionLocked, or SessionError where it cannot be."""
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
        """What earlier runs have left in it: whole lines only."""
        data = self._read(-1)
        return data[: data.rfind(b"\n") + 1]

    def read_head(self) -> bytes:
        """Its first line, as far as that is one of a session; nothing where it cannot be read."""
        try:
            return self._read(_MAX_HEAD).partition(b"\n")[0]
        except SessionError:
            return b""

    def write(self, data: bytes) -> str:
        """Put it where sessions are; returns its path, empty when there is nothing in it. Raises SessionError."""
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
        """The file itself, never another one that a link names. Raises OSError."""
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
            raise OSError(errno.EINVAL, "it is no regular file")
        return handle

    def _enter(self, *, create: bool) -> int:
        """Its folder, open; step by step, so that nobody can swap one underneath. Raises OSError, or SessionError."""
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
                raise SessionError(
                    f"{where}, where the session was to be kept, is a link by now, or leads through one"
                ) from error
            raise
        return handle


def _make(name: str, above: int) -> None:
    """A folder for this user alone, where there is nothing yet."""
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)


Find = Callable[[str], Path | None]
"""Where the session of a run below is kept; None for one that nobody here knows, or that keeps none."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def collect_files(pieces: Iterable[tuple[str, int, bytes]], session: str) -> dict[str, bytes]:
    """What is on record of the sessions below one of this name, by run; one with a gap in it is left out."""
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
    """Put the sessions below where they are kept; returns what went wrong, which costs no run its end."""
    problems = []
    for run_id, data in collect_files(pieces, session).items():
        if (path := find(run_id)) is None:
            continue
        try:
            await asyncio.to_thread(_write, path, data)
        except (OSError, RetinueError) as error:
            problems.append(f"the session of run {run_id} could not be brought home: {error}")
    return problems


def _write(path: Path, data: bytes) -> None:
    # Nobody but us makes this folder: a link in its place leads to somebody else's.
    if path.parent.is_symlink():
        raise SessionError(f"{quote(str(path.parent), 200)} is a link")
    HomeFile(str(path), is_shared=False).write(data)

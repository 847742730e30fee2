"""Open and read untrusted files without following symbolic links.

Where the system supports it, every step starts from an open directory, so that nothing can be replaced meanwhile. Must
not know what the files are for.
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_text

_HAS_HANDLES = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NAME = late_pattern(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")
# Invisible characters besides those that are unsafe in a terminal: zero width, and tags.
_HIDDEN = late_pattern("[\u00ad\u180e\u200b\u2060-\u2064\U000e0000-\U000e007f]")


class LinkFound(OSError):
    """Raised when a component of a path is a symbolic link; `filename` is that component."""


class Folder:
    """An open directory. Use it as a context manager."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def open(cls, path: Path, *, follow: bool) -> Self:
        """Open a directory; without `follow` its last component must not be a link. Raises OSError."""
        if not follow:
            _check_link(path)
        if not _HAS_HANDLES:
            return cls(path, None)
        return cls(path, os.open(path, _FOLDER if follow else _FOLDER | _NO_LINK))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def enter(self, name: str, *, create: bool = False) -> "Folder":
        """Open, and if `create` first make, a directory inside this one. Raises OSError, LinkFound for a link."""
        path = self.path / name
        if create:
            with suppress(FileExistsError):
                os.mkdir(name if self._handle is not None else path, 0o700, dir_fd=self._handle)
        self._check(name, stat.S_IFDIR)
        if self._handle is None:
            return Folder(path, None)
        try:
            return Folder(path, os.open(name, _FOLDER | _NO_LINK, dir_fd=self._handle))
        except OSError as error:
            error.filename = str(path)
            raise

    def walk(self, parts: Sequence[str], *, create: bool = False) -> "Folder":
        """Open a directory several levels below this one, and close this one."""
        folder = self
        for name in parts:
            with folder:
                below = folder.enter(name, create=create)
            folder = below
        return folder

    def read(self, name: str, limit: int) -> bytes:
        """Read at most `limit + 1` bytes of a regular file. Raises OSError, LinkFound for a link."""
        self._check(name, stat.S_IFREG)
        target = name if self._handle is not None else str(self.path / name)
        handle = os.open(target, _FILE | _NO_LINK, dir_fd=self._handle)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", str(self.path / name))
            return file.read(limit + 1)

    def create(self, name: str, data: bytes) -> None:
        """Write a new file; an existing file stays unchanged. Raises OSError."""
        target = name if self._handle is not None else str(self.path / name)
        try:
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600, dir_fd=self._handle)
        except FileExistsError:
            return
        with os.fdopen(handle, "wb") as file:
            file.write(data)

    def list(self, limit: int) -> list[os.DirEntry[str]]:
        """Return at most `limit` entries, sorted by their bytes. Raises OSError."""
        with os.scandir(self._handle if self._handle is not None else self.path) as entries:
            found = [entry for entry, _ in zip(entries, range(limit), strict=False)]
        return sorted(found, key=lambda entry: os.fsencode(entry.name))

    def _check(self, name: str, kind: int) -> None:
        path = self.path / name
        status = os.stat(name if self._handle is not None else path, dir_fd=self._handle, follow_symlinks=False)
        found = stat.S_IFMT(status.st_mode)
        if found == stat.S_IFLNK:
            raise LinkFound(errno.ELOOP, "is a symbolic link", str(path))
        if found != kind:
            wanted = "directory" if kind == stat.S_IFDIR else "regular file"
            raise OSError(errno.EINVAL, f"is not a {wanted}", str(path))


def is_safe_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def decode_text(data: bytes, limit: int) -> str:
    """Decode at most `limit` bytes, with invisible characters escaped; text that was cut gets a note."""
    text = data[:limit].decode("utf-8", "ignore" if len(data) > limit else "replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").strip()
    shown = _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], escape_text(text))
    if len(data) > limit:
        shown += f"\n... (truncated at {limit} bytes)"
    return shown


def _check_link(path: Path) -> None:
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise LinkFound(errno.ELOOP, "is a symbolic link", str(path))

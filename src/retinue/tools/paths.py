"""Resolves paths given by a model, explains why a path cannot be used, and escapes file names for output.

`Revision` identifies one version of a file's content. Symbolic links and `..` are left to the kernel: resolving them
here could give a different file than opening does.
"""

import errno
import os
import re
import stat
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import ToolRetry, quote

_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_LISTED_FOR_HINTS = 2000

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)
_CONTROL = "[\x00-\x1f\x7f\u0085\u2028\u2029\ud800-\udfff]"


def resolve_path(path: str, cwd: Path) -> str:
    """Resolve a path relative to cwd: expand `~`, drop a leading `@`, replace typographic spaces."""
    if not path.isascii():
        path = re.sub(_SPACES, " ", path)
    if path.startswith("@"):
        path = path[1:]
    if path.startswith("~"):
        path = os.path.expanduser(path)
    return os.path.join(cwd, path)


def resolve_existing(path: str, cwd: Path) -> str:
    """Like resolve_path, but if the path is missing, also try the spellings that macOS uses for it."""
    plain = resolve_path(path, cwd)
    if os.path.lexists(plain):
        return plain
    import unicodedata

    exact = os.path.join(cwd, path)
    decomposed = unicodedata.normalize("NFD", plain)
    variants = (
        exact,
        re.sub(r" (AM|PM)\.", "\u202f\\1.", plain, flags=re.IGNORECASE),
        decomposed,
        plain.replace("'", "\u2019"),
        decomposed.replace("'", "\u2019"),
    )
    return next((variant for variant in variants if variant != plain and os.path.lexists(variant)), plain)


def name_kind(mode: int) -> str:
    """Return the file type of a mode, with an article."""
    return next((kind for test, kind in _KINDS if test(mode)), "a file")


def explain(error: OSError, path: str, resolved: str) -> ToolRetry:
    """Return an error that says why a path cannot be used, with similar names if it does not exist."""
    shown = quote(path, 200)
    match error.errno:
        case errno.ENOENT:
            return ToolRetry(f"Path not found: {shown}.{_suggest(resolved)}")
        case errno.ENOTDIR:
            return ToolRetry(f"Path not found: {shown}: a part of it is a file, not a directory.")
        case errno.EISDIR:
            return ToolRetry(f"{shown} is a directory. Use ls to list it.")
        case errno.EACCES | errno.EPERM:
            return ToolRetry(f"Permission denied: {shown}.")
        case errno.ELOOP:
            return ToolRetry(f"{shown} is a loop of symbolic links.")
        case errno.ENAMETOOLONG:
            return ToolRetry(f"Path too long: {shown}.")
        case errno.ENXIO:
            return ToolRetry(f"{shown} is a socket or a device without a reader: expected a regular file.")
    return ToolRetry(f"{shown}: {error.strerror or error}.")


def _suggest(resolved: str) -> str:
    folder, name = os.path.split(resolved.rstrip("/"))
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_LISTED_FOR_HINTS), strict=False)]
    except OSError:
        return f" Its directory {quote(folder, 200)} does not exist either." if folder else ""
    import difflib

    lowered = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower()[:255], lowered, n=3, cutoff=0.6)
    if not close:
        return ""
    return f" Close names there: {', '.join(quote(lowered[each], 120) for each in close)}."


def show_name(name: str) -> str:
    """Escape control characters and bytes that are not UTF-8, for a line of output."""
    return re.sub(_CONTROL, _escape, name)


def show_raw_name(raw: bytes) -> str:
    return show_name(os.fsdecode(raw))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(found[0]) or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    )


class Revision(Struct, frozen=True):
    """Identifies one version of a file's content by its stat data."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Revision":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def find_real_path(handle: int, path: str) -> str:
    """Return the path of an open file with all links followed; where the system cannot tell, resolve `path` instead."""
    try:
        real = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return os.path.realpath(path)
    # The kernel appends " (deleted)" for a file that was removed or replaced meanwhile; it is not part of the name.
    return real if os.fstat(handle).st_nlink else real.removesuffix(" (deleted)")

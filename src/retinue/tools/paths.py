"""Turns the path a model gave into one the system can open, and says what is wrong with it when it cannot.

Symbolic links and `..` are left to the kernel: resolving them here would give another file than opening does.
"""

import errno
import os
import re
import stat
from pathlib import Path

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


def resolve_path(path: str, cwd: Path) -> str:
    """Relative to cwd, `~` expanded, a leading `@` dropped, typographic spaces made plain."""
    if not path.isascii():
        path = re.sub(_SPACES, " ", path)
    if path.startswith("@"):
        path = path[1:]
    if path.startswith("~"):
        path = os.path.expanduser(path)
    return os.path.join(cwd, path)


def resolve_existing(path: str, cwd: Path) -> str:
    """Like resolve_path, but a name that is missing may also be spelled the way macOS stores it."""
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
    """What a file mode stands for, with its article."""
    return next((kind for test, kind in _KINDS if test(mode)), "a file")


def explain(error: OSError, path: str, resolved: str) -> ToolRetry:
    """The reason a path cannot be used, in words, with the names that come close when it does not exist."""
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
    # The nearest directory that exists; its names are what the model may have meant.
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

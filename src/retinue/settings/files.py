"""Reading small files that people wrote, without hanging on what is no file and without a traceback.

This file must not know what the files mean.
"""

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.core.strictjson import MAX_BYTES, JsonError, parse_json
from retinue.settings.bounds import Bound
from retinue.tools.paths import find_real_path

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Windows has only the first of these.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}


def read_bounded(path: Path, limit: int = MAX_BYTES, bound: Bound | None = None) -> bytes | None:
    """Up to `limit + 1` bytes of a regular file; None when there is none. Raises ConfigError for anything else.

    With a bound, also for a file that links lead to and that is none of this name's.
    """
    try:
        # Looked at before it is opened, since opening a device may do something; O_NONBLOCK in case it is swapped.
        _check_kind(path, os.stat(path))
        descriptor = os.open(path, _READ)
        try:
            status = os.fstat(descriptor)
            _check_kind(path, status)
            # Of the file that is open: whatever is swapped from here on, this one is read.
            if bound and (fault := bound.find_fault(path, find_real_path(descriptor, str(path)), status)):
                raise ConfigError(f"{path}: {fault}")
            return _read(descriptor, limit + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise ConfigError(f"{path}: cannot be read: {_explain(error)}") from None
    except ValueError:
        return None  # a NUL in the name: no such file can exist


def read_text(path: Path, limit: int = MAX_BYTES, bound: Bound | None = None) -> str:
    """The text of a file, empty when there is none. Raises ConfigError for what is too long or no text."""
    data = read_bounded(path, limit, bound) or b""
    if len(data) > limit:
        raise ConfigError(f"{path}: larger than {limit} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _check_kind(path: Path, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise ConfigError(f"{path}: is {_KINDS.get(kind, 'no regular file')}; expected a regular file")


def _read(descriptor: int, wanted: int) -> bytes:
    pieces = []
    while wanted > 0 and (piece := os.read(descriptor, min(wanted, 1 << 20))):
        pieces.append(piece)
        wanted -= len(piece)
    return b"".join(pieces)


def load_json(
    path: Path, *, comments: bool = False, bound: Bound | None = None, sha256: str = ""
) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """The object in an optional file; a broken file counts as absent, and the diagnostics say what is wrong with it.

    With `sha256` only this content counts.
    """
    try:
        data = read_bounded(path, bound=bound)
        if sha256 and data is not None and hashlib.sha256(data).hexdigest() != sha256:
            text = f"has changed since you accepted it; read it, then: retinue trust --file {path} --yes"
            return None, [Diagnostic(f"{path}: {text}", str(path), code="changed")]
        return (None if data is None else parse_json(data, where=str(path), comments=comments)), []
    except JsonError as error:
        return None, [
            Diagnostic(
                f"{path}:{problem.line}:{problem.column}: {problem.message}", str(path), problem.line, code="json"
            )
            for problem in error.problems
        ]
    except ConfigError as error:
        return None, [Diagnostic(str(error), str(path), code="unreadable")]


def may_mention(path: Path, words: tuple[str, ...], bound: Bound | None = None) -> bool:
    """Whether a file that is broken has one of some words in it, whatever its encoding, or nobody can tell."""
    try:
        data = read_bounded(path, bound=bound)
    except ConfigError:
        return True
    return data is None or any(word.encode() in data.replace(b"\0", b"") for word in words)


def _explain(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "the symbolic links go round in a circle"
    return (error.strerror or type(error).__name__).lower()

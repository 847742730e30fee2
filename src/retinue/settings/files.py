"""Reads small JSON, YAML and text files from allowed places, without hanging and with readable errors.

Must not know what the files mean.
"""

import errno
import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ConfigError
from retinue.core.launch import Territory
from retinue.core.strictjson import MAX_BYTES, JsonError, parse_json
from retinue.sandbox.profile import SandboxSettings, is_below, list_secrets
from retinue.settings.paths import Paths
from retinue.tools.path_guard import is_hidden
from retinue.tools.paths import find_real_path

if TYPE_CHECKING:
    from retinue.definitions.frontmatter import FrontmatterField


class FileBound(Struct, frozen=True):
    """Conditions for the file that a path leads to."""

    root: str
    """A real path; files outside are refused."""
    hidden: Territory
    owners: tuple[int, ...] = ()
    """User ids whose files are accepted; empty accepts all."""
    is_users: bool = False
    """Whether these are the user's own files: an owner's file may then be anywhere, and any file inside the root."""

    def find_fault(self, path: Path, real: str, status: os.stat_result) -> str:
        """Return why an open file is refused and what to do; empty if it is accepted."""
        is_inside = is_below(real, (self.root,))
        if is_hidden(real, self.hidden):
            return f"leads to {real}, which is hidden from agents because it may contain secrets; use another file"
        if not is_inside and not self.is_users:
            return f"leads to {real}, outside {self.root}; replace the link with the file itself"
        is_free = not self.owners or (is_inside and self.is_users)
        if not is_free and not {status.st_uid, os.lstat(path).st_uid}.issubset(self.owners):
            return "belongs to another user; change its owner (chown) or copy it to your agent directory"
        return ""


def bind_project(paths: Paths, hidden: tuple[str, ...] = ()) -> FileBound:
    """Conditions for a project's files; `hidden` are paths that the user hides in addition to the default."""
    return FileBound(os.path.realpath(paths.project), list_hidden(paths, hidden))


def bind_folder(folder: Path, paths: Paths, hidden: tuple[str, ...] = ()) -> FileBound:
    """Conditions for files in a folder of unknown ownership: they must belong to this user."""
    return FileBound(os.path.realpath(folder), list_hidden(paths, hidden), (os.geteuid(),))


def bind_user(paths: Paths, hidden: tuple[str, ...] = ()) -> FileBound:
    """Conditions for the user's own files, which dotfile managers may link to any place."""
    return FileBound(os.path.realpath(paths.agent_dir), list_hidden(paths, hidden), (os.geteuid(), 0), is_users=True)


@lru_cache(maxsize=16)  # called for every session, always with the same arguments
def list_hidden(paths: Paths, hidden: tuple[str, ...] = ()) -> Territory:
    told = (*hidden, *paths.withheld)
    wishes = SandboxSettings(secrets=told, home=str(paths.home or ""), agent_dir=str(paths.agent_dir))
    return Territory(hidden=list_secrets(wishes), exposed=tuple(map(os.path.realpath, paths.exposed)))


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Windows has only O_RDONLY.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}


def read_bounded(path: Path, limit: int = MAX_BYTES, bound: FileBound | None = None) -> bytes | None:
    """Read up to `limit + 1` bytes of a regular file; None if there is none. Raises ConfigError for anything else.

    Also raises if the file that links lead to violates `bound`.
    """
    try:
        # Checked before opening, because opening a device may have effects; O_NONBLOCK in case the file is replaced.
        _check_kind(path, os.stat(path))
        descriptor = os.open(path, _READ)
        try:
            status = os.fstat(descriptor)
            _check_kind(path, status)
            # Check the open descriptor: replacing the file from here on has no effect.
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


def read_text(path: Path, limit: int = MAX_BYTES, bound: FileBound | None = None) -> str:
    """Read a text file; empty if there is none. Raises ConfigError if it is too long or not text."""
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
        raise ConfigError(f"{path}: is {_KINDS.get(kind, 'not a regular file')}; expected a regular file")


def _read(descriptor: int, wanted: int) -> bytes:
    pieces = []
    while wanted > 0 and (piece := os.read(descriptor, min(wanted, 1 << 20))):
        pieces.append(piece)
        wanted -= len(piece)
    return b"".join(pieces)


def load_json(
    path: Path, *, comments: bool = False, bound: FileBound | None = None, sha256: str = ""
) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """Read the object in an optional JSON file; a broken file counts as missing and is reported as a diagnostic.

    With `sha256` only that content is accepted.
    """
    try:
        data = read_bounded(path, bound=bound)
        if sha256 and data is not None and hashlib.sha256(data).hexdigest() != sha256:
            text = f"has changed since you accepted it; read it, then: retinue trust --file {path} --yes"
            return None, [Diagnostic(f"{path}: {text}", str(path), code="changed")]
        return (None if data is None else parse_json(data, where=str(path), comments=comments)), []
    except JsonError as error:
        return None, [Diagnostic(str(error), str(path), error.line, code="json")]
    except ConfigError as error:
        return None, [Diagnostic(str(error), str(path), code="unreadable")]


def may_mention(path: Path, words: tuple[str, ...], bound: FileBound | None = None) -> bool:
    """Return whether a broken file contains one of some words in any encoding; True if it cannot be read."""
    try:
        data = read_bounded(path, bound=bound)
    except ConfigError:
        return True
    return data is None or any(word.encode() in data.replace(b"\0", b"") for word in words)


def _explain(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "the symbolic links form a loop"
    return (error.strerror or type(error).__name__).lower()


MAX_YAML_BYTES = 500_000


def is_there(path: Path) -> bool:
    """Return whether a file of this name exists; True if that cannot be determined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


class BrokenFile(Exception):
    """The file cannot be read; its text is the reason without the path."""

    def __init__(self, reason: str, problem: Diagnostic) -> None:
        super().__init__(reason)
        self.problem = problem


def load_entries(path: Path, code: str, bound: FileBound | None = None) -> "tuple[FrontmatterField, ...]":
    """Read the top-level fields of an optional YAML file. Raises BrokenFile, with a diagnostic of that code."""
    if not is_there(path):
        return ()
    from retinue.definitions.frontmatter import BlockError
    from retinue.definitions.yaml import read_yaml

    try:
        if not os.path.exists(path):
            raise ConfigError(f"{path}: cannot be read: it is a broken link")
        text = read_text(path, MAX_YAML_BYTES, bound)
        return read_yaml(text, 1)[0] if text.strip() else ()
    except BlockError as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise BrokenFile(str(error), Diagnostic(f"{place}: {error}", str(path), error.line, "error", code)) from None
    except ConfigError as error:
        raise BrokenFile(str(error), Diagnostic(str(error), str(path), None, "error", code)) from None

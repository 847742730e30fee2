"""Reads small files that people wrote, JSON and YAML, only where they may lie, without hanging or a traceback.

This file must not know what the files mean.
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
from retinue.sandbox.profile import SandboxWishes, is_below, list_secrets
from retinue.settings.paths import Paths
from retinue.tools.path_guard import is_hidden
from retinue.tools.paths import find_real_path

if TYPE_CHECKING:
    from retinue.definitions.frontmatter import FrontmatterField


class Bound(Struct, frozen=True):
    """What the file behind a name has to be."""

    root: str
    """A real path; what lies outside is not read."""
    hidden: Territory
    owners: tuple[int, ...] = ()
    """The users whose files count; empty: anybody's."""
    is_users: bool = False
    """Whether the user keeps it: a file of one of the owners may then lie anywhere, and any file in the root."""

    def find_fault(self, path: Path, real: str, status: os.stat_result) -> str:
        """Why a file that was opened is not read, and what to do about it; empty when it is."""
        is_inside = is_below(real, (self.root,))
        if is_hidden(real, self.hidden):
            return f"leads to {real}, which is hidden from agents since it may hold secrets; put another file there"
        if not is_inside and not self.is_users:
            return f"leads to {real}, outside of {self.root}; put the file itself there instead of a link"
        is_free = not self.owners or (is_inside and self.is_users)
        if not is_free and not {status.st_uid, os.lstat(path).st_uid}.issubset(self.owners):
            return "belongs to another user; make it yours (chown), or put a copy into your agent directory"
        return ""


def bind_project(paths: Paths, hidden: tuple[str, ...] = ()) -> Bound:
    """For files of the project; `hidden` is what the user hides beside the usual."""
    return Bound(os.path.realpath(paths.project), list_hidden(paths, hidden))


def bind_folder(folder: Path, paths: Paths, hidden: tuple[str, ...] = ()) -> Bound:
    """For files of a folder that is not known to be the user's: of nobody else."""
    return Bound(os.path.realpath(folder), list_hidden(paths, hidden), (os.geteuid(),))


def bind_user(paths: Paths, hidden: tuple[str, ...] = ()) -> Bound:
    """For the user's own files, which programs for dot files link to wherever they keep them."""
    return Bound(os.path.realpath(paths.agent_dir), list_hidden(paths, hidden), (os.geteuid(), 0), is_users=True)


@lru_cache(maxsize=16)  # for every session that is opened, and always the same
def list_hidden(paths: Paths, hidden: tuple[str, ...] = ()) -> Territory:
    """What agents do not see."""
    told = (*hidden, *paths.withheld)
    wishes = SandboxWishes(secrets=told, home=str(paths.home or ""), agent_dir=str(paths.agent_dir))
    return Territory(hidden=list_secrets(wishes), exposed=tuple(map(os.path.realpath, paths.exposed)))


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


MAX_YAML_BYTES = 500_000


def is_there(path: Path) -> bool:
    """Whether something of this name exists, also when nobody can tell."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


class BrokenFile(Exception):
    """The file cannot be read; its text is the reason without the place."""

    def __init__(self, reason: str, problem: Diagnostic) -> None:
        super().__init__(reason)
        self.problem = problem


def load_entries(path: Path, code: str, bound: Bound | None = None) -> "tuple[FrontmatterField, ...]":
    """What stands at the top of an optional file. Raises BrokenFile, with a diagnostic of that code."""
    if not is_there(path):
        return ()
    from retinue.definitions.frontmatter import BlockError
    from retinue.definitions.yaml import read_yaml

    try:
        if not os.path.exists(path):
            raise ConfigError(f"{path}: cannot be read: it leads nowhere")
        text = read_text(path, MAX_YAML_BYTES, bound)
        return read_yaml(text, 1)[0] if text.strip() else ()
    except BlockError as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise BrokenFile(str(error), Diagnostic(f"{place}: {error}", str(path), error.line, "error", code)) from None
    except ConfigError as error:
        raise BrokenFile(str(error), Diagnostic(str(error), str(path), None, "error", code)) from None

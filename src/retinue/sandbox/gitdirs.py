"""Where a workspace's repository is, read from git's own pointers without running git.

A pointer is written by whoever made the repository: it says what must be protected, never what may be written.
"""

import os
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from retinue.sandbox.stubs import is_stub

_MOST_BYTES = 4096
_MOST_CONFIG = 256 * 1024
_DEEPEST = 5
_SECTION = re.compile(r'\s*\[\s*([^\]"\s]+)[^\]]*\]\s*(.*)')
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")


class GitDirs(Struct, frozen=True):
    """The directories a checkout belongs to; empty where there is none."""

    own: str = ""
    """Of this checkout: HEAD, index."""
    common: str = ""
    """Of all checkouts: objects, refs, hooks, config."""
    is_plain: bool = False
    """`.git` is a directory in its place, neither a pointer nor a link nor missing."""
    is_known: bool = False
    """A repository elsewhere that names this checkout, as `.git` names it: one alone can be made to name anything."""

    @property
    def is_linked(self) -> bool:
        """A checkout beside the main one, with git's own record of it."""
        return self.is_known and self.own != self.common


def read_git_dirs(workspace: str) -> GitDirs:
    """Follow `.git` of a directory."""
    entry = os.path.join(workspace, ".git")
    if is_stub(entry):
        return GitDirs()
    if os.path.isdir(entry) and not os.path.islink(entry):
        return GitDirs(entry, _follow(entry, read_line(os.path.join(entry, "commondir"))) or entry, True)
    line = "" if os.path.islink(entry) else read_line(entry)
    own = _follow(workspace, line.removeprefix("gitdir:").strip()) if line.startswith("gitdir:") else ""
    if not own or not os.path.isfile(os.path.join(own, "HEAD")):
        return GitDirs()
    common = _follow(own, read_line(os.path.join(own, "commondir"))) or own
    if common == own:
        return GitDirs(own, own, is_known=read_worktree(own) == os.path.realpath(workspace) and is_repository(own))
    is_record = os.path.dirname(own) == os.path.join(common, "worktrees") and is_repository(common)
    is_known = is_record and _leads(own, read_line(os.path.join(own, "gitdir")), entry)
    return GitDirs(own, common, is_known=is_known)


def read_worktree(git: str) -> str:
    """The checkout that a repository names in its configuration, or itself."""
    told = [value for key, value in read_settings(os.path.join(git, "config")) if key == "core.worktree"]
    return (_follow(git, told[-1]) if told else "") or git


def is_repository(folder: str) -> bool:
    """Whether a directory has what git asks for, in its own place: a link would lead elsewhere."""
    parts = {name: os.path.join(folder, name) for name in ("HEAD", "objects", "refs")}
    return (
        not any(map(os.path.islink, parts.values()))
        and os.path.isfile(parts["HEAD"])
        and os.path.isdir(parts["objects"])
        and os.path.isdir(parts["refs"])
    )


def read_lender(own: str) -> str:
    """The repository whose objects another one borrows; empty where there is none."""
    objects = _follow(own, read_line(os.path.join(own, "objects", "info", "alternates")))
    return os.path.dirname(objects) if os.path.basename(objects) == "objects" else ""


def list_steering(configs: Iterable[str], workspace: str, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where configuration says that hooks are, and more configuration: whoever writes there decides what git runs.

    Made for real files, not for every spelling git takes: what is not understood is not followed.
    """
    hooks: list[str] = []
    files: list[str] = []
    waiting = [(path, 0) for path in configs]
    for path, depth in waiting:
        for key, value in read_settings(path):
            if key == "core.hookspath":
                place = os.path.join(workspace, _expand(value, home))
                # What lies beside such a folder is what its scripts run.
                hooks += [os.path.dirname(place), place] if os.path.basename(place) == "_" else [place]
            elif key == "include.path" or (key.startswith("includeif") and key.endswith(".path")):
                more = os.path.join(os.path.dirname(path), _expand(value, home))
                files.append(more)
                if depth < _DEEPEST and len(waiting) < 50:
                    waiting.append((more, depth + 1))
    return tuple(map(os.path.realpath, hooks)), tuple(map(os.path.realpath, files))


def read_settings(path: str) -> Iterator[tuple[str, str]]:
    """The settings of a file of git's, by `section.key` in lower case."""
    section = ""
    for line in _read(path, _MOST_CONFIG).replace("\\\n", "").splitlines():
        if (begun := _SECTION.match(line)) is not None:
            section, line = begun[1].lower(), begun[2]
        if (setting := _SETTING.match(line)) is not None:
            value = re.split(r"\s+[;#]", setting[2])[0].strip()
            yield f"{section}.{setting[1].lower()}", value.replace('"', "")


def _expand(path: str, home: str) -> str:
    return os.path.join(home, path[2:]) if path.startswith("~/") and home else path


def _follow(base: str, pointer: str) -> str:
    if not pointer or "\0" in pointer:
        return ""
    path = os.path.realpath(os.path.join(base, pointer))
    return path if os.path.isdir(path) else ""


def _leads(base: str, pointer: str, place: str) -> bool:
    """Whether a pointer in a directory names a place."""
    return bool(pointer) and os.path.realpath(os.path.join(base, pointer)) == os.path.realpath(place)


def read_line(path: str) -> str:
    """The first line of a small file; empty where there is none."""
    return _read(path, _MOST_BYTES).partition("\n")[0].strip()


def is_hidden(path: str) -> bool:
    """Whether something may be there that this user cannot read now, but its owner could make readable."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _read(path: str, most: int) -> str:
    try:
        # Not every entry of that name is a file: a pipe would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = os.read(handle, most)
    except OSError:
        return ""
    finally:
        os.close(handle)
    return data.decode("utf-8", "surrogateescape")

"""Locate a workspace's git repository by reading git's pointer files, without running git.

Pointers are untrusted, because the author of the repository wrote them: they may add protection but never grant write
access.
"""

import os
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from retinue.core.pattern import late_pattern
from retinue.sandbox.stubs import is_stub

_MOST_BYTES = 4096
_MOST_CONFIG = 256 * 1024
_DEEPEST = 5
_SECTION = late_pattern(r'\s*\[\s*([^\]"\s]+)[^\]]*\]\s*(.*)')
_SETTING = late_pattern(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")


class GitDirs(Struct, frozen=True):
    """The git directories of a checkout; empty strings if there is no repository."""

    own: str = ""
    """The checkout's own directory: HEAD, index."""
    common: str = ""
    """The directory shared by all checkouts: objects, refs, hooks, config."""
    is_plain: bool = False
    """Whether `.git` is a real directory, not a pointer, a link or missing."""
    is_known: bool = False
    """Whether the repository is elsewhere and points back to this checkout; a pointer one way could be forged."""

    @property
    def is_linked(self) -> bool:
        """Whether this is a linked worktree that git has a record of."""
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
    """Return the checkout that a repository's configuration names (core.worktree), or the repository itself."""
    told = [value for key, value in read_settings(os.path.join(git, "config")) if key == "core.worktree"]
    return (_follow(git, told[-1]) if told else "") or git


def is_repository(folder: str) -> bool:
    """Return whether a directory contains what git requires, with no links that lead elsewhere."""
    parts = {name: os.path.join(folder, name) for name in ("HEAD", "objects", "refs")}
    return (
        not any(map(os.path.islink, parts.values()))
        and os.path.isfile(parts["HEAD"])
        and os.path.isdir(parts["objects"])
        and os.path.isdir(parts["refs"])
    )


def read_lender(own: str) -> str:
    """Return the repository whose objects this repository borrows (alternates); empty if none."""
    objects = _follow(own, read_line(os.path.join(own, "objects", "info", "alternates")))
    return os.path.dirname(objects) if os.path.basename(objects) == "objects" else ""


def list_steering(configs: Iterable[str], workspace: str, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the hook directories and included files that git configuration names; their content decides what git runs.

    Handles usual files, not every syntax git accepts; what is not understood is ignored.
    """
    hooks: list[str] = []
    files: list[str] = []
    waiting = [(path, 0) for path in configs]
    for path, depth in waiting:
        for key, value in read_settings(path):
            if key == "core.hookspath":
                place = os.path.join(workspace, _expand(value, home))
                # Scripts in such a directory (husky) run the files beside it.
                hooks += [os.path.dirname(place), place] if os.path.basename(place) == "_" else [place]
            elif key == "include.path" or (key.startswith("includeif") and key.endswith(".path")):
                more = os.path.join(os.path.dirname(path), _expand(value, home))
                files.append(more)
                if depth < _DEEPEST and len(waiting) < 50:
                    waiting.append((more, depth + 1))
    return tuple(map(os.path.realpath, hooks)), tuple(map(os.path.realpath, files))


def read_settings(path: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a git configuration file as `section.key` (lower case) and value."""
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
    return bool(pointer) and os.path.realpath(os.path.join(base, pointer)) == os.path.realpath(place)


def read_line(path: str) -> str:
    """Return the first line of a small file; empty if it cannot be read."""
    return _read(path, _MOST_BYTES).partition("\n")[0].strip()


def is_hidden(path: str) -> bool:
    """Return whether this user cannot read the path now, although its owner could make it readable."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _read(path: str, most: int) -> str:
    try:
        # Opening a named pipe would block forever without O_NONBLOCK.
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

"""A profile as the arguments of bubblewrap. Looks at what exists, starts nothing, changes nothing.

The order of the arguments is the order of the mounts: a later one covers an earlier one.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from retinue.sandbox.profile import PRIVATE_DIRS, Profile, is_below, list_visible
from retinue.sandbox.stubs import is_stub

HARD_FEATURES = ("seccomp",)
FEATURES = (*HARD_FEATURES, "size", "disable-userns")
_EMPTY_BYTES = "4096"

Arguments: TypeAlias = list[str]


class Covers(Struct, frozen=True):
    """What of the protected paths is there, and what must be stood in for."""

    present: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Cannot be covered: a mount would land where they lead."""


def build_arguments(
    program: str,
    profile: Profile,
    cwd: str,
    *,
    features: frozenset[str] = frozenset(FEATURES),
    seccomp_fd: int,
    tmp: str = "",
    visible: Sequence[str] = (),
    covers: Covers | None = None,
) -> Arguments:
    """The command line up to the command itself; `tmp` is a directory that stands for the system's temporary one.

    `covers` is what was found of the protected paths before anything stood in for those that are missing.
    """
    sized = "size" in features
    hidden = [path for path in PRIVATE_DIRS if os.path.isdir(path) and not os.path.islink(path)]
    arguments = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # The user who owns these knobs stays their owner without any capability: they are the host's code execution.
    arguments += ["--ro-bind", "/proc/sys", "/proc/sys"]
    for path in hidden:
        if tmp and path in ("/tmp", "/var/tmp"):
            arguments += ["--bind", tmp, path]
        else:
            arguments += _make_tmpfs(path, profile.tmp_bytes, sized=sized)
    # Its directory would else be a place to write as much as memory holds.
    arguments += ["--remount-ro", "/dev"]
    outer = [path for path in profile.secrets if is_below(profile.workspace, [path])]
    arguments += _hide(outer, hidden, sized=sized)
    arguments += ["--ro-bind" if profile.is_readonly else "--bind", profile.workspace, profile.workspace]
    visible = list_visible(profile, (*profile.visible, *visible))
    for path in visible:
        # Elsewhere it is seen anyway.
        if is_below(path, hidden) and os.path.exists(path):
            arguments += ["--ro-bind", path, path]
    for path in profile.writable if not profile.is_readonly else ():
        if os.path.exists(path) and not is_below(path, [profile.workspace]):
            # A branch of another copy may be gone by the time it is mounted.
            arguments += ["--bind-try", path, path]
    exposed = (profile.workspace, *profile.writable, *visible)
    arguments += _hide([path for path in profile.secrets if path not in outer], hidden, sized=sized, exposed=exposed)
    arguments += _protect(profile, covers or sort_protected(profile))
    for path in profile.writable if not profile.is_readonly else ():
        if is_below(path, profile.protected) and os.path.exists(path):
            arguments += ["--bind-try", path, path]
    arguments += ["--unshare-all", "--unshare-user", *(["--share-net"] if profile.network else ())]
    arguments += ["--disable-userns"] if "disable-userns" in features else []
    arguments += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--chdir", cwd]
    return [*arguments, "--seccomp", str(seccomp_fd), "--"]


def sort_protected(profile: Profile) -> Covers:
    """Look at each protected path."""
    present: list[str] = []
    files: list[str] = []
    folders: list[str] = []
    links: list[str] = []
    roots = (profile.workspace, *profile.writable)
    for path in () if profile.is_readonly else profile.protected:
        if any(os.path.islink(folder) for folder in _list_between(path, roots)):
            # What is made or mounted there would be where the link leads.
            links.append(path)
            continue
        try:
            # A neighbour's stand-in goes away with the neighbour's command: this one needs its own share in it.
            mode = 0 if is_stub(path) else os.lstat(path).st_mode
        except FileNotFoundError:
            mode = 0
        except OSError:
            continue
        if not mode:
            # Where even its directory is missing, whoever makes that one makes a new path: its first part is covered.
            missing = _find_missing(path, profile)
            is_file = missing == path and _is_file_name(path)
            (files if is_file else folders).append(missing)
            continue
        (links if stat.S_ISLNK(mode) else present).append(path)
    unique = (tuple(dict.fromkeys(found)) for found in (present, files, folders, links))
    return Covers(*unique)


def _is_file_name(path: str) -> bool:
    """Whether a directory would not do: git reads these. Elsewhere it adds every file it finds, and no empty folder."""
    return os.path.basename(path) in ("config", "config.worktree", "commondir", "gitdir")


def _find_missing(path: str, profile: Profile) -> str:
    """The first part of a path that is not there."""
    roots = (profile.workspace, *profile.writable)
    while (
        (parent := os.path.dirname(path)) not in roots
        and parent != "/"
        and (is_stub(parent) or not os.path.lexists(parent))
    ):
        path = parent
    return path


def _protect(profile: Profile, covers: Covers) -> Arguments:
    roots = (profile.workspace, *profile.writable)
    missing = (*covers.files, *covers.folders)
    arguments: Arguments = []
    # A directory with a mount in it can be renamed away and made anew; one that is a mount itself cannot.
    for folder in sorted({folder for path in (*covers.present, *missing) for folder in _list_between(path, roots)}):
        if folder not in covers.present and folder not in missing:
            arguments += ["--bind", folder, folder]
    for path in covers.present:
        arguments += ["--ro-bind", path, path]
    for path in covers.files:
        # Reads as nothing, and takes whatever is written to it.
        arguments += ["--ro-bind", "/dev/null", path]
    for path in covers.folders:
        arguments += ["--ro-bind", path, path]
    return arguments


def _list_between(path: str, roots: Sequence[str]) -> Iterator[str]:
    folder = os.path.dirname(path)
    while is_below(folder, roots) and folder not in roots:
        yield folder
        folder = os.path.dirname(folder)


def _hide(paths: Sequence[str], hidden: Sequence[str], *, sized: bool, exposed: Sequence[str] = ()) -> Arguments:
    arguments: Arguments = []
    done: list[str] = []
    for path in sorted(paths):
        if is_below(path, done) or (is_below(path, hidden) and not is_below(path, exposed)):
            continue
        if os.path.isdir(path):
            arguments += [*_make_tmpfs(path, int(_EMPTY_BYTES), sized=sized), "--remount-ro", path]
        elif os.path.exists(path):
            arguments += ["--ro-bind", "/dev/null", path]
        else:
            continue
        done.append(path)
    return arguments


def _make_tmpfs(path: str, size: int, *, sized: bool) -> Arguments:
    # The size is that of the very next one only.
    return [*(["--size", str(size)] if sized else ()), "--tmpfs", path]

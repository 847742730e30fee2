"""A profile as the arguments of bubblewrap. Looks at what exists, starts nothing, changes nothing.

The order of the arguments is the order of the mounts, and a later one covers an earlier one: so what is around a place
is mounted before it.
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
_USERS_OWN = ".gitconfig"
"""Git's file of the user."""

Arguments: TypeAlias = list[str]
Mount: TypeAlias = tuple[str, Arguments]
"""A place, and what is mounted there."""


class Covers(Struct, frozen=True):
    """What of the protected paths is there, and what must be stood in for."""

    present: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Cannot be covered: a mount would land where they lead."""
    sockets: tuple[str, ...] = ()
    """Of other programs: nobody may connect to them."""


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
    private = [path for path in PRIVATE_DIRS if os.path.isdir(path) and not os.path.islink(path)]
    arguments = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # The user who owns these knobs stays their owner without any capability: they are the host's code execution.
    arguments += ["--ro-bind", "/proc/sys", "/proc/sys"]
    for path in private:
        if tmp and path in ("/tmp", "/var/tmp"):
            arguments += ["--bind", tmp, path]
        else:
            arguments += _make_tmpfs(path, profile.tmp_bytes, sized=sized)
    # Its directory would else be a place to write as much as memory holds.
    arguments += ["--remount-ro", "/dev"]
    shown = list_visible(profile, (*profile.visible, *visible))
    covers = covers or sort_protected(profile)
    mounts = [*_open(profile, shown, private), *_protect(profile, covers)]
    mounts += _hide(profile, private, exposed=shown, sized=sized)
    mounts += [(path, ["--ro-bind", "/dev/null", path]) for path in covers.sockets]
    # The nearest word about a place counts. Of two about the same one the later: what is hidden stays so.
    for _, words in sorted(mounts, key=lambda mount: mount[0].count("/")):
        arguments += words
    # Only now: until here there were places to be made in them.
    arguments += [word for path, words in mounts if "--tmpfs" in words for word in ("--remount-ro", path)]
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
    return os.path.basename(path) in (_USERS_OWN, "config", "config.worktree", "commondir", "gitdir")


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


def _open(profile: Profile, visible: Sequence[str], private: Sequence[str]) -> Iterator[Mount]:
    """What is seen, and what may be written."""
    for path in (*(path for path in profile.exposed if not is_below(path, [profile.workspace])), *visible):
        # Elsewhere it is seen anyway.
        if is_below(path, (*private, *profile.secrets)) and os.path.exists(path):
            yield path, ["--ro-bind", path, path]
    yield profile.workspace, ["--ro-bind" if profile.is_readonly else "--bind", profile.workspace, profile.workspace]
    for path in profile.writable if not profile.is_readonly else ():
        # One that a command has turned into a link since leads to what nobody allowed.
        is_there = os.path.exists(path) and os.path.realpath(path) == path
        if is_there and not profile.is_hidden(path) and not _is_held(path, profile):
            # A branch of another copy may be gone by the time it is mounted.
            yield path, ["--bind-try", path, path]


def _is_held(path: str, profile: Profile) -> bool:
    """Whether a writable path is in the workspace, and nothing in between keeps it from being written."""
    return is_below(path, [profile.workspace]) and not is_below(path, profile.protected)


def _protect(profile: Profile, covers: Covers) -> Iterator[Mount]:
    missing = (*covers.files, *covers.folders)
    # What is hidden cannot be written anyway, and to mount it would show it.
    covered = [path for path in (*covers.present, *missing) if not profile.is_hidden(path)]
    roots = (profile.workspace, *profile.writable)
    # A directory with a mount in it can be renamed away and made anew; one that is a mount itself cannot.
    for folder in sorted({folder for path in covered for folder in _list_between(path, roots)}):
        if folder not in covered and not profile.is_protected(folder):
            yield folder, ["--bind", folder, folder]
    for path in covered:
        # A device cannot be opened there. Git passes such a file by, but for the user's own: that is shown, empty.
        is_shut = path in covers.files and os.path.basename(path) != _USERS_OWN
        yield path, ["--ro-bind", "/dev/null" if is_shut else path, path]


def _list_between(path: str, roots: Sequence[str]) -> Iterator[str]:
    folder = os.path.dirname(path)
    while is_below(folder, roots) and folder not in roots:
        yield folder
        folder = os.path.dirname(folder)


def _hide(profile: Profile, private: Sequence[str], *, exposed: Sequence[str], sized: bool) -> Iterator[Mount]:
    """Nothing is seen of these; what is in them all the same is mounted after them."""
    shown = (profile.workspace, *profile.writable, *profile.exposed, *exposed)
    done: list[str] = []
    for path in sorted(profile.secrets):
        if is_below(path, done) or (is_below(path, private) and not is_below(path, shown)):
            continue
        if os.path.isdir(path):
            yield path, _make_tmpfs(path, int(_EMPTY_BYTES), sized=sized)
        elif os.path.exists(path):
            yield path, ["--ro-bind", "/dev/null", path]
        else:
            continue
        done.append(path)


def _make_tmpfs(path: str, size: int, *, sized: bool) -> Arguments:
    # The size is that of the very next one only.
    return [*(["--size", str(size)] if sized else ()), "--tmpfs", path]

"""Convert a sandbox profile to bubblewrap arguments. Only inspects the file system; starts and changes nothing.

Mounts happen in argument order and a later mount covers an earlier one, so parents are mounted before their children.
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
"""The user's git configuration file."""

Arguments: TypeAlias = list[str]
Mount: TypeAlias = tuple[str, Arguments]
"""A path and the arguments that mount something there."""


class CoveredPaths(Struct, frozen=True):
    """The protected paths, sorted by how each must be covered."""

    present: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Cannot be covered: a mount would land on the link's target."""
    sockets: tuple[str, ...] = ()
    """Sockets of other programs, to which commands must not connect."""


def build_arguments(
    program: str,
    profile: Profile,
    cwd: str,
    *,
    features: frozenset[str] = frozenset(FEATURES),
    seccomp_fd: int,
    tmp: str = "",
    visible: Sequence[str] = (),
    covers: CoveredPaths | None = None,
) -> Arguments:
    """Return the command line up to the command itself.

    `tmp` is mounted in place of the system's temporary directories. `covers` is the result of `sort_protected` from
    before stubs were created for missing paths.
    """
    sized = "size" in features
    private = [path for path in PRIVATE_DIRS if os.path.isdir(path) and not os.path.islink(path)]
    arguments = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # Their owner may write these files even without capabilities, which would allow code execution on the host.
    arguments += ["--ro-bind", "/proc/sys", "/proc/sys"]
    for path in private:
        if tmp and path in ("/tmp", "/var/tmp"):
            arguments += ["--bind", tmp, path]
        else:
            arguments += _make_tmpfs(path, profile.tmp_bytes, sized=sized)
    # Otherwise commands could fill the memory by writing to /dev.
    arguments += ["--remount-ro", "/dev"]
    shown = list_visible(profile, (*profile.visible, *visible))
    covers = covers or sort_protected(profile)
    mounts = [*_open(profile, shown, private), *_protect(profile, covers)]
    mounts += _hide(profile, private, exposed=shown, sized=sized)
    mounts += [(path, ["--ro-bind", "/dev/null", path]) for path in covers.sockets]
    # The deepest path wins. For equal paths the later mount wins, so hidden paths stay hidden.
    for _, words in sorted(mounts, key=lambda mount: mount[0].count("/")):
        arguments += words
    # Last, because the mounts above create mount points in these directories.
    arguments += [word for path, words in mounts if "--tmpfs" in words for word in ("--remount-ro", path)]
    arguments += ["--unshare-all", "--unshare-user", *(["--share-net"] if profile.network else ())]
    arguments += ["--disable-userns"] if "disable-userns" in features else []
    arguments += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--chdir", cwd]
    return [*arguments, "--seccomp", str(seccomp_fd), "--"]


def sort_protected(profile: Profile) -> CoveredPaths:
    present: list[str] = []
    files: list[str] = []
    folders: list[str] = []
    links: list[str] = []
    roots = (profile.workspace, *profile.writable)
    for path in () if profile.is_readonly else profile.protected:
        if any(os.path.islink(folder) for folder in _list_between(path, roots)):
            # Anything created or mounted there would land at the link's target.
            links.append(path)
            continue
        try:
            # Another command's stub disappears with that command, so this command must hold it, too.
            mode = 0 if is_stub(path) else os.lstat(path).st_mode
        except FileNotFoundError:
            mode = 0
        except OSError:
            continue
        if not mode:
            # If parent directories are missing as well, cover the first missing component.
            missing = _find_missing(path, profile)
            is_file = missing == path and _is_file_name(path)
            (files if is_file else folders).append(missing)
            continue
        (links if stat.S_ISLNK(mode) else present).append(path)
    unique = (tuple(dict.fromkeys(found)) for found in (present, files, folders, links))
    return CoveredPaths(*unique)


def _is_file_name(path: str) -> bool:
    """Return whether git needs a file here; elsewhere an empty directory is better, because git does not add it."""
    return os.path.basename(path) in (_USERS_OWN, "config", "config.worktree", "commondir", "gitdir")


def _find_missing(path: str, profile: Profile) -> str:
    """Return the topmost missing component of a path."""
    roots = (profile.workspace, *profile.writable)
    while (
        (parent := os.path.dirname(path)) not in roots
        and parent != "/"
        and (is_stub(parent) or not os.path.lexists(parent))
    ):
        path = parent
    return path


def _open(profile: Profile, visible: Sequence[str], private: Sequence[str]) -> Iterator[Mount]:
    """Yield the mounts for readable and writable paths."""
    for path in (*(path for path in profile.exposed if not is_below(path, [profile.workspace])), *visible):
        # Everything else is visible already.
        if is_below(path, (*private, *profile.secrets)) and os.path.exists(path):
            yield path, ["--ro-bind", path, path]
    yield profile.workspace, ["--ro-bind" if profile.is_readonly else "--bind", profile.workspace, profile.workspace]
    for path in profile.writable if not profile.is_readonly else ():
        # If a command replaced the path by a link, the target is not allowed.
        is_there = os.path.exists(path) and os.path.realpath(path) == path
        if is_there and not profile.is_hidden(path) and not _is_held(path, profile):
            # Another worktree's branch may disappear before it is mounted.
            yield path, ["--bind-try", path, path]


def _is_held(path: str, profile: Profile) -> bool:
    """Return whether the workspace mount already makes this path writable."""
    return is_below(path, [profile.workspace]) and not is_below(path, profile.protected)


def _protect(profile: Profile, covers: CoveredPaths) -> Iterator[Mount]:
    missing = (*covers.files, *covers.folders)
    # Hidden paths cannot be written anyway, and mounting them would reveal them.
    covered = [path for path in (*covers.present, *missing) if not profile.is_hidden(path)]
    roots = (profile.workspace, *profile.writable)
    # A directory that contains a mount can be renamed and recreated; a mount point itself cannot.
    for folder in sorted({folder for path in covered for folder in _list_between(path, roots)}):
        if folder not in covered and not profile.is_protected(folder):
            yield folder, ["--bind", folder, folder]
    for path in covered:
        # /dev/null cannot be opened there and git skips it. The user's own file is shown as an empty file instead.
        is_shut = path in covers.files and os.path.basename(path) != _USERS_OWN
        yield path, ["--ro-bind", "/dev/null" if is_shut else path, path]


def _list_between(path: str, roots: Sequence[str]) -> Iterator[str]:
    folder = os.path.dirname(path)
    while is_below(folder, roots) and folder not in roots:
        yield folder
        folder = os.path.dirname(folder)


def _hide(profile: Profile, private: Sequence[str], *, exposed: Sequence[str], sized: bool) -> Iterator[Mount]:
    """Yield mounts that hide the secrets; visible paths inside them are mounted afterwards."""
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
    # bwrap applies --size to the next --tmpfs only.
    return [*(["--size", str(size)] if sized else ()), "--tmpfs", path]

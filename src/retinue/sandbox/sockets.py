"""Find socket files of other programs: connecting to one gives a command the rights of the listening program.

Mounts do not prevent connections and seccomp does not see paths, so existing sockets are found when a command starts
and covered by a mount.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from retinue.sandbox.profile import PRIVATE_DIRS, Profile, is_below

_BOUND, _MOUNTS = "/proc/net/unix", "/proc/self/mountinfo"
_MOST_BESIDE = 500
"""Maximum number of entries examined in one directory."""


def list_foreign(profile: Profile) -> tuple[str, ...]:
    """Return real paths of sockets that are in the home directory or mounted, except those that the run may use."""
    mounted = frozenset(filter(_is_socket, _list_mounted()))
    found = dict.fromkeys(os.path.realpath(path) for path in (*mounted, *filter(_is_socket, _list_bound(profile.home))))
    return tuple(path for path in found if _is_foreign(path, profile, path in mounted))


def _is_foreign(path: str, profile: Profile, is_mounted: bool) -> bool:
    if path in profile.writable or profile.is_hidden(path):
        return False
    work, home = [profile.workspace], profile.home
    # Sockets in the workspace belong to the run, unless the workspace is the whole home directory.
    if is_below(path, work) and not (home and is_below(home, work)):
        return False
    if is_below(path, PRIVATE_DIRS) and not is_below(path, (*work, *profile.writable, *profile.exposed)):
        return False
    return is_mounted or bool(home and is_below(path, [home]))


def _list_bound(home: str) -> Iterator[str]:
    """Yield the paths where programs listen, as far as their bound names tell."""
    names: set[str] = set()
    with suppress(OSError), open(_BOUND, encoding="utf-8", errors="surrogateescape") as file:
        names = {fields[7] for line in islice(file, 1, None) if len(fields := line.rstrip("\n").split(None, 7)) == 8}
    relative = [name for name in names if not name.startswith(("/", "@"))]
    for place in _list_places(home) if relative else ():
        yield from (os.path.join(place, name) for name in relative)
    for path in (name for name in names if name.startswith("/")):
        yield path
        # A socket that was renamed is usually still in the same directory.
        if home and is_below(path, [home]) and not os.path.lexists(path):
            with suppress(OSError), os.scandir(os.path.dirname(path)) as entries:
                yield from (entry.path for entry in islice(entries, _MOST_BESIDE))


def _list_places(home: str) -> set[str]:
    """Return the working directories of programs that are in the home directory."""
    found: set[str] = set()
    for name in os.listdir("/proc"):
        with suppress(OSError):
            found.update([os.readlink(f"/proc/{name}/cwd")] if name.isdigit() else ())
    return {place for place in found if home and is_below(place, [home])}


def _list_mounted() -> Iterator[str]:
    """Yield all mount points; containers get single sockets as mounts."""
    with suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            yield line.split(" ", 5)[4].replace("\\040", " ")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False

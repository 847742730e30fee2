"""Sockets of other programs that are files: who can connect to one has the rights of whoever listens.

Mounts do not keep anybody from connecting, and a filter does not see the path. So those that are there when a command
starts are found here, by what the kernel tells of them, and covered by whoever mounts.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from retinue.sandbox.profile import PRIVATE_DIRS, Profile, is_below

_BOUND, _MOUNTS = "/proc/net/unix", "/proc/self/mountinfo"
_MOST_BESIDE = 500
"""Entries of one directory that are looked at."""


def list_foreign(profile: Profile) -> tuple[str, ...]:
    """Real paths of sockets in the home, and of such that are mounts, but for the workspace's and what is named."""
    mounted = frozenset(filter(_is_socket, _list_mounted()))
    found = dict.fromkeys(os.path.realpath(path) for path in (*mounted, *filter(_is_socket, _list_bound(profile.home))))
    return tuple(path for path in found if _is_foreign(path, profile, path in mounted))


def _is_foreign(path: str, profile: Profile, is_mounted: bool) -> bool:
    if path in profile.writable or profile.is_hidden(path):
        return False
    work, home = [profile.workspace], profile.home
    # What is in the workspace is the run's own, unless that is the whole home.
    if is_below(path, work) and not (home and is_below(home, work)):
        return False
    if is_below(path, PRIVATE_DIRS) and not is_below(path, (*work, *profile.writable, *profile.exposed)):
        return False
    return is_mounted or bool(home and is_below(path, [home]))


def _list_bound(home: str) -> Iterator[str]:
    """Where programs of this machine listen, as far as the names tell that they gave."""
    names: set[str] = set()
    with suppress(OSError), open(_BOUND, encoding="utf-8", errors="surrogateescape") as file:
        names = {fields[7] for line in islice(file, 1, None) if len(fields := line.rstrip("\n").split(None, 7)) == 8}
    relative = [name for name in names if not name.startswith(("/", "@"))]
    for place in _list_places(home) if relative else ():
        yield from (os.path.join(place, name) for name in relative)
    for path in (name for name in names if name.startswith("/")):
        yield path
        # One that has another name by now is mostly still where it was.
        if home and is_below(path, [home]) and not os.path.lexists(path):
            with suppress(OSError), os.scandir(os.path.dirname(path)) as entries:
                yield from (entry.path for entry in islice(entries, _MOST_BESIDE))


def _list_places(home: str) -> set[str]:
    """The directories in the home that programs work in."""
    found: set[str] = set()
    for name in os.listdir("/proc"):
        with suppress(OSError):
            found.update([os.readlink(f"/proc/{name}/cwd")] if name.isdigit() else ())
    return {place for place in found if home and is_below(place, [home])}


def _list_mounted() -> Iterator[str]:
    """Mounts that are no directories: a container is handed single sockets so."""
    with suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            yield line.split(" ", 5)[4].replace("\\040", " ")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False

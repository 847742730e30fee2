"""How much memory one command may have, with all that it starts. Only says how much; whoever starts it counts."""

from contextlib import suppress

_SHARE = 0.75
"""Of what there is: a command that needs more would take the user's own programs down with it."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def find_bound(wanted: int = 0) -> int:
    """Bytes: as many as the user wants, else a share of what there is; 0 where nobody knows how much that is."""
    return wanted or int(find_memory() * _SHARE)


def find_memory() -> int:
    """Bytes that this machine has, or the container that we are in, if that may have less."""
    total = 0
    with suppress(OSError, ValueError, IndexError), open("/proc/meminfo", "rb") as file:
        total = int(file.readline().split()[1]) * 1024
    for path in _LIMITS:
        with suppress(OSError, ValueError), open(path, "rb") as file:
            total = min(total, int(file.read()))
    return total

"""Limit the number of processes and the memory of commands.

Root needs a control group: the kernel's per-user process limit works in a sandbox for every user except root, and a
fork bomb stops the machine before counting from outside notices.
"""

import os
from contextlib import suppress

MAX_TASKS = 3072
_ROOT = "/sys/fs/cgroup"
_PREFIX = "retinue-"


class ControlGroup:
    """A control group for commands, created on first use and removed by `close`."""

    def __init__(self, root: str = _ROOT, most: int = MAX_TASKS, *, is_root: bool | None = None) -> None:
        """`is_root` overrides the check of the current user."""
        self._root = root
        self._most = most
        self._is_root = is_root if is_root is not None else hasattr(os, "geteuid") and os.geteuid() == 0
        self._path: str | None = None

    @property
    def takes_threads(self) -> bool:
        """Whether a single thread of this process can join the group, so that only its children are limited."""
        return self.is_useful and os.path.isfile(f"{self._path}/tasks")

    @property
    def is_useful(self) -> bool:
        """Whether a group exists or can be created."""
        if self._path is None:
            self._path = self._make()
        return bool(self._path)

    def describe(self) -> str:
        """Describe for the user how the number of processes is limited."""
        if not self._is_root:
            return "the kernel limits the processes of each sandbox"
        if self.takes_threads:
            return "a control group limits the number of processes"
        if self.is_useful:
            return "a control group of version 2 (untested) limits the number of processes"
        return "processes are only counted from outside; a fork bomb of root may be faster"

    def admit(self, pid: int) -> None:
        """Move a process into the group, so that its later children are limited; failures are ignored."""
        if self.is_useful:
            with suppress(OSError):
                _write(f"{self._path}/cgroup.procs", str(pid))

    def enter(self, thread: int) -> None:
        """Move a thread of this process into the group, so that its children are limited; failures are ignored."""
        if self.takes_threads:
            with suppress(OSError):
                _write(f"{self._path}/tasks", str(thread))

    def close(self) -> None:
        """Remove the group if it is empty."""
        if self._path:
            with suppress(OSError):
                os.rmdir(self._path)
        self._path = None

    def _make(self) -> str:
        if not self._is_root:
            return ""
        for base in (f"{self._root}/pids", f"{self._root}/unified", self._root):
            if not os.path.isfile(f"{base}/cgroup.procs"):
                continue
            _remove_leftovers(base)
            path = f"{base}/{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
            try:
                os.mkdir(path)
            except OSError:
                continue
            try:
                _write(f"{path}/pids.max", str(self._most))
            except OSError:
                os.rmdir(path)
                continue
            return path
        return ""


def _remove_leftovers(base: str) -> None:
    """Remove groups of processes that were killed; the kernel refuses to remove a group in use."""
    with suppress(OSError):
        for name in os.listdir(base):
            owner = name.removeprefix(_PREFIX).partition("-")[0]
            if name.startswith(_PREFIX) and owner.isdigit() and not os.path.isdir(f"/proc/{owner}"):
                with suppress(OSError):
                    os.rmdir(f"{base}/{name}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


_SHARE = 0.75
"""Share of the memory: a command that needs more would take memory from the user's own programs."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def find_bound(wanted: int = 0) -> int:
    """Return the memory limit in bytes: `wanted`, or a share of the available memory; 0 if that is unknown."""
    return wanted or int(find_memory() * _SHARE)


def find_memory() -> int:
    """Return the memory of this machine or container in bytes, whichever is smaller; 0 if unknown."""
    total = 0
    with suppress(OSError, ValueError, IndexError), open("/proc/meminfo", "rb") as file:
        total = int(file.readline().split()[1]) * 1024
    for path in _LIMITS:
        with suppress(OSError, ValueError), open(path, "rb") as file:
            total = min(total, int(file.read()))
    return total

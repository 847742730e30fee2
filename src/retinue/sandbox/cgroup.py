"""How much memory, how many processes and threads commands may have.

Root needs it: the kernel's limit per user counts in a sandbox for everybody else, and never for root. A bomb that is
only counted from outside stops the whole machine before anybody has counted.
"""

import os
from contextlib import suppress

MAX_TASKS = 3072
_ROOT = "/sys/fs/cgroup"
_PREFIX = "retinue-"


class Corral:
    """One group, made when it is first needed and removed at the end."""

    def __init__(self, root: str = _ROOT, most: int = MAX_TASKS, *, is_root: bool | None = None) -> None:
        """`is_root` says for whom it is, when not for whoever runs this."""
        self._root = root
        self._most = most
        self._is_root = is_root if is_root is not None else hasattr(os, "geteuid") and os.geteuid() == 0
        self._path: str | None = None

    @property
    def takes_threads(self) -> bool:
        """Whether one thread of ours can be in the group, and the others not: what it starts costs nothing more."""
        return self.is_useful and os.path.isfile(f"{self._path}/tasks")

    @property
    def is_useful(self) -> bool:
        """Whether there is such a group, or one can be made."""
        if self._path is None:
            self._path = self._make()
        return bool(self._path)

    def describe(self) -> str:
        """What bounds the number of processes, in a sentence; says where nobody has tried it."""
        if not self._is_root:
            return "processes are bounded by the kernel, for each sandbox"
        if self.takes_threads:
            return "processes are bounded by a control group"
        if self.is_useful:
            return "processes are bounded by a control group of version 2, which is untested: our tests had none"
        return "processes are only counted from outside: a fork bomb of root may be quicker"

    def admit(self, pid: int) -> None:
        """Put a process in; all it starts from then on is in. Where that fails it is only counted."""
        if self.is_useful:
            with suppress(OSError):
                _write(f"{self._path}/cgroup.procs", str(pid))

    def enter(self, thread: int) -> None:
        """Put a thread of ours in; where that fails, or cannot be, what it starts is only counted."""
        if self.takes_threads:
            with suppress(OSError):
                _write(f"{self._path}/tasks", str(thread))

    def close(self) -> None:
        """Remove the group, when it is empty."""
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
    """Groups of processes that were killed; one that is in use cannot be removed."""
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

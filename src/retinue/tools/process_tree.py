"""Keeps a process and its descendants together, so that all of them end together, even if retinue is killed.

The best way is a pid namespace (bubblewrap): when its first process dies, the kernel kills all others. Otherwise a
small supervisor adopts all orphans and kills each of them. This file must not know what the processes do.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

SYSTEM_DIRS = ("/usr/bin", "/bin", "/usr/local/bin")
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PROBE_TIMEOUT_S = 5.0
_HOLD_TRIES, _HOLD_S = 50, 0.001

TreeKind: TypeAlias = Literal["namespace", "supervisor", "plain"]


class Tree(Struct, frozen=True):
    kind: TreeKind
    program: str = ""
    skip: int = 0
    """How many of the first descendants belong to the launcher, not to the command."""

    @property
    def needs_lifeline(self) -> bool:
        """Whether the started process detects by a closed pipe that retinue is gone."""
        return self.kind != "plain"

    def wrap(self, argv: Sequence[str], cwd: str, lifeline: int) -> list[str]:
        """Return the command line that starts `argv` inside the tree."""
        match self.kind:
            case "namespace" if not self.program:
                return list(argv)
            case "namespace":
                # Use a separate session inside, so that `kill 0` does not reach the launcher. Do not run as pid 1: it
                # ignores its own signals, and exit statuses would be wrong.
                return [self.program, *_NAMESPACE, "--chdir", cwd, "--", *argv]
            case "supervisor":
                return [self.program, "-I", "-S", str(_SUPERVISOR), str(lifeline), *argv]
            case "plain":
                return [*([self.program, "--pdeathsig", "KILL", "--"] if self.program else ()), *argv]

    def select(self, pids: list[int]) -> list[int]:
        """Select the descendants of the launcher that should receive a signal."""
        # The first one is pid 1 of the namespace, which must live until the others have ended.
        return pids[self.skip or self.kind == "namespace" :]


PLAIN = Tree("plain")
_NAMESPACE = (
    *("--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"),
    *("--die-with-parent", "--new-session"),
)


class TreeProbe:
    """Finds out once which kind of tree this machine supports."""

    def __init__(self, *, kind: TreeKind | None = None, dirs: Sequence[str] = SYSTEM_DIRS) -> None:
        self._kind = kind
        self._dirs = tuple(dirs)
        self._tree: Tree | None = None
        self._lock = threading.Lock()

    async def find(self) -> Tree:
        """Return the strongest tree available. Only system directories count: a workspace may contain its own bwrap."""
        if self._tree is None:
            return await asyncio.to_thread(self._probe)
        return self._tree

    def _probe(self) -> Tree:
        # A hundred runs may ask at once; only the first one probes.
        with self._lock:
            if self._tree is None:
                program = find_program("bwrap", self._dirs) if self._kind in (None, "namespace") else ""
                if program and (self._kind == "namespace" or _works(program)):
                    self._tree = Tree("namespace", program)
                else:
                    python = "" if self._kind == "plain" else self._find_python()
                    self._tree = Tree("supervisor", python) if python else PLAIN
            return self._tree

    def _find_python(self) -> str:
        # After a change of user our own interpreter may be inaccessible; any other works too.
        own = sys.executable or ""
        return own if os.access(own, os.X_OK) else find_program("python3", self._dirs)

    def find_single(self) -> Tree:
        """Return a tree for a program that starts no other; it dies with us if util-linux is installed."""
        return Tree("plain", find_program("setpriv", self._dirs) if sys.platform == "linux" else "")


def find_program(name: str, dirs: Iterable[str]) -> str:
    """Return the first executable of that name in these directories, or an empty string."""
    for folder in dirs:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def _works(program: str) -> bool:
    # That it is installed says little, because containers often forbid namespaces; so try it.
    try:
        argv = [program, *_NAMESPACE, "--", "/bin/sh", "-c", "exit 7"]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False, cwd="/", env={}
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 7


def list_descendants(root: int) -> list[int]:
    """Return all descendants of a process, parents first; empty if there is no /proc."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = _list_children(waiting.pop(0))
        found += children
        waiting += children
    return found


def _list_children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


def count_all_tasks() -> int:
    """Return the number of processes and threads on the machine, an upper bound for any tree; 0 if unknown."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def list_folders(root: int, kind: TreeKind) -> list[str]:
    """Return the /proc directory of each process of a tree."""
    if kind == "namespace" and (first := _list_children(root)[:1]):
        base = f"/proc/{first[0]}/root/proc"
        with suppress(OSError):
            return [f"{base}/{name}" for name in os.listdir(base) if name.isdigit()]
    return [f"/proc/{pid}" for pid in (root, *list_descendants(root))]


def has_more_tasks(root: int, kind: TreeKind, most: int) -> bool:
    """Whether a tree has more than `most` processes and threads. Slow for large trees: not for the event loop."""
    base, count = "/proc", 0
    waiting: list[int] = [root]
    if kind == "namespace" and (first := _list_children(root)[:1]):
        # Listing the namespace's own /proc is cheap, however many processes there are.
        with suppress(OSError):
            waiting = [int(name) for name in os.listdir(f"/proc/{first[0]}/root/proc") if name.isdigit()]
            base = f"/proc/{first[0]}/root/proc"
    while waiting and count + len(waiting) <= most:
        pid = waiting.pop()
        count += _count_threads(f"{base}/{pid}/task")
        if base == "/proc":
            waiting += _list_children(pid)
    return count + len(waiting) > most


def _count_threads(folder: str) -> int:
    try:
        return max(os.stat(folder).st_nlink - 2, 1)
    except OSError:
        return 0


def kill_launcher(pid: int) -> None:
    """Kill the first process of a namespace before its launcher.

    If the launcher is killed alone at the wrong moment, it leaves behind a first process that waits for it forever. So
    the launcher is stopped with SIGSTOP, which takes a few milliseconds, and then its children are killed.
    """
    with suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        for _ in range(_HOLD_TRIES):
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b") ")[2][:1] in b"TtZX":
                    break
            time.sleep(_HOLD_S)
        kill_processes(_list_children(pid), signal.SIGKILL)


def kill_processes(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process; ignore those that have ended or belong to others."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)

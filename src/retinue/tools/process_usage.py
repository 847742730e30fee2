"""Limits the tasks and memory of a command with all its descendants, for which the kernel has no limit.

Reading the totals of the machine is cheap; the tree is examined, in a thread, only if they exceed the limit. Must not
know how a tree is killed.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct

from retinue.tools.process_tree import TreeKind, count_all_tasks, has_more_tasks, list_folders

COUNT_S = 0.03
"""Seconds between two checks: a fork bomb starts some hundred processes in that time, or fills about 100 MB."""
_FLOOD = 4096
"""So many new tasks on the machine must come from this tree."""
_REST = 10
"""After a memory check, wait this many times its duration before the next."""
_USED = (b"MemTotal:", b"MemAvailable:", b"SwapTotal:", b"SwapFree:")
_HELD = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_SHARES = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class UsageBounds(Struct, frozen=True):
    """What a tree may use at once; 0 means no limit."""

    tasks: int = 0
    memory: int = 0
    """Bytes of memory that is not backed by a file, including swap."""

    def __bool__(self) -> bool:
        return bool(self.tasks or self.memory)


class ExceededLimit(Struct, frozen=True):
    """The limit that was exceeded; the others are 0."""

    tasks: int = 0
    memory: int = 0


class UsageMonitor:
    """Checks one process tree periodically until it is stopped or the tree exceeds a limit."""

    def __init__(
        self, find_root: Callable[[], int], kind: TreeKind, bounds: UsageBounds, end: Callable[[ExceededLimit], None]
    ) -> None:
        """`find_root` returns the pid of the tree's first process; `end` is called once, when a limit is exceeded."""
        self._find_root = find_root
        self._kind = kind
        self._bounds = bounds
        self._end = end
        self._others = count_all_tasks() if bounds.tasks else 0
        """Tasks on the machine at the start."""
        self._loop = asyncio.get_running_loop()
        self._busy: set[str] = set()
        self._rested_s = 0.0
        """When memory may be checked again: a check of a large tree is expensive."""
        self._is_over = False
        self._timer = self._loop.call_later(COUNT_S, self._look)

    def stop(self) -> None:
        self._is_over = True
        self._timer.cancel()

    def _look(self) -> None:
        self._look_at_tasks(self._bounds.tasks)
        self._look_at_memory(self._bounds.memory)
        if not self._is_over:
            self._timer = self._loop.call_later(COUNT_S, self._look)

    def _look_at_tasks(self, most: int) -> None:
        everybody = count_all_tasks() if most else 0
        if most and everybody - self._others > max(2 * most, _FLOOD):
            # So many in so short a time: counting them would take longer than the machine survives.
            self._tell(ExceededLimit(tasks=most))
        elif everybody > most:
            self._ask(has_more_tasks, most, ExceededLimit(tasks=most))

    def _look_at_memory(self, most: int) -> None:
        if most and self._loop.time() >= self._rested_s and read_used_memory() > most:
            self._ask(has_more_memory, most, ExceededLimit(memory=most))

    def _ask(self, has_more: Callable[[int, TreeKind, int], bool], most: int, excess: ExceededLimit) -> None:
        name = has_more.__name__
        if self._is_over or name in self._busy:
            return
        self._busy.add(name)
        began_s = self._loop.time()

        def judge(told: "asyncio.Future[bool]") -> None:
            self._busy.discard(name)
            if excess.memory:
                now_s = self._loop.time()
                self._rested_s = now_s + _REST * (now_s - began_s)
            if not told.cancelled() and told.result():
                self._tell(excess)

        self._loop.run_in_executor(None, has_more, self._find_root(), self._kind, most).add_done_callback(judge)

    def _tell(self, excess: ExceededLimit) -> None:
        if not self._is_over:
            self.stop()
            self._end(excess)


def read_used_memory() -> int:
    """Return the bytes that all processes of this machine use, an upper bound for any tree; 0 if unknown."""
    total, free, swap, swap_free = _read_sizes("/proc/meminfo", _USED)
    return total - free + swap - swap_free


def has_more_memory(root: int, kind: TreeKind, most: int) -> bool:
    """Whether a tree uses more than `most` bytes. Slow for large trees: not for the event loop.

    First, shared memory is counted for each process; only if that is too much, it is divided among the processes.
    """
    folders = list_folders(root, kind)
    if sum(sum(_read_sizes(f"{folder}/status", _HELD)) for folder in folders) <= most:
        return False
    return sum(sum(_read_shares(folder)) for folder in folders) > most


def _read_shares(folder: str) -> Iterator[int]:
    shares = _read_sizes(f"{folder}/smaps_rollup", _SHARES)
    # All zero: access is denied or the kernel does not report it. Then count everything as the process's own.
    yield from shares if any(shares) else _read_sizes(f"{folder}/status", _HELD)


def _read_sizes(path: str, fields: tuple[bytes, ...]) -> list[int]:
    """Return the size of each field in bytes, in order; 0 for missing fields."""
    found = dict.fromkeys(fields, 0)
    with suppress(OSError, ValueError), open(path, "rb") as file:
        for line in file.read().splitlines():
            words = line.split(None, 2)
            if words and words[0] in found:
                found[words[0]] = int(words[1]) * 1024
    return list(found.values())

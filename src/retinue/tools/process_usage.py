"""Counts what a command and all it has started have of what the kernel does not bound for it: tasks, and memory.

Cheap for as long as the whole machine has little of it; only then is the tree looked at, in a thread. Must not know how
a tree is ended.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct

from retinue.tools.process_tree import TreeKind, count_all_tasks, has_more_tasks, list_folders

COUNT_S = 0.03
"""Between two looks: a bomb makes some hundred processes in that time, and fills about a hundred megabytes."""
_FLOOD = 4096
"""So many new tasks of the whole machine are never somebody else's."""
_REST = 10
"""Times as long as a look at memory took nobody looks again."""
_USED = (b"MemTotal:", b"MemAvailable:", b"SwapTotal:", b"SwapFree:")
_HELD = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_SHARES = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class UsageBounds(Struct, frozen=True):
    """What a tree may have at once; 0 is as much as the system allows."""

    tasks: int = 0
    """Processes and threads."""
    memory: int = 0
    """Bytes that are in no file, also those in swap."""

    def __bool__(self) -> bool:
        return bool(self.tasks or self.memory)


class Excess(Struct, frozen=True):
    """Which bound was passed."""

    tasks: int = 0
    memory: int = 0


class Census:
    """Looks after one tree, from its start until it is stopped or has too much."""

    def __init__(
        self, find_root: Callable[[], int], kind: TreeKind, bounds: UsageBounds, end: Callable[[Excess], None]
    ) -> None:
        """`find_root` says which process keeps the tree; `end` is called once, when it has too much of something."""
        self._find_root = find_root
        self._kind = kind
        self._bounds = bounds
        self._end = end
        self._others = count_all_tasks() if bounds.tasks else 0
        """Tasks of the whole machine when it began."""
        self._loop = asyncio.get_running_loop()
        self._busy: set[str] = set()
        self._rested_s = 0.0
        """When memory may be looked at again: where a tree is large a look is dear, and it grows no faster for that."""
        self._is_over = False
        self._timer = self._loop.call_later(COUNT_S, self._look)

    def stop(self) -> None:
        """Look no more."""
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
            # So many in so short a time: by the time they are counted the machine has no room for anybody.
            self._tell(Excess(tasks=most))
        elif everybody > most:
            self._ask(has_more_tasks, most, Excess(tasks=most))

    def _look_at_memory(self, most: int) -> None:
        if most and self._loop.time() >= self._rested_s and read_used_memory() > most:
            self._ask(has_more_memory, most, Excess(memory=most))

    def _ask(self, has_more: Callable[[int, TreeKind, int], bool], most: int, excess: Excess) -> None:
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

    def _tell(self, excess: Excess) -> None:
        if not self._is_over:
            self.stop()
            self._end(excess)


def read_used_memory() -> int:
    """Bytes that all processes of this machine have, at most: nobody has more. 0 where nobody knows."""
    total, free, swap, swap_free = _read_sizes("/proc/meminfo", _USED)
    return total - free + swap - swap_free


def has_more_memory(root: int, kind: TreeKind, most: int) -> bool:
    """Whether a tree has more memory. Takes long where it is large: not for a loop.

    What processes share counts for each of them at first; a tree that is too large even so is looked at closely.
    """
    folders = list_folders(root, kind)
    if sum(sum(_read_sizes(f"{folder}/status", _HELD)) for folder in folders) <= most:
        return False
    return sum(sum(_read_shares(folder)) for folder in folders) > most


def _read_shares(folder: str) -> Iterator[int]:
    shares = _read_sizes(f"{folder}/smaps_rollup", _SHARES)
    # Nothing at all: it may not be asked, or the kernel cannot tell. In doubt all of it is its own.
    yield from shares if any(shares) else _read_sizes(f"{folder}/status", _HELD)


def _read_sizes(path: str, fields: tuple[bytes, ...]) -> list[int]:
    """Bytes under each name, in their order; 0 for those that are not there."""
    found = dict.fromkeys(fields, 0)
    with suppress(OSError, ValueError), open(path, "rb") as file:
        for line in file.read().splitlines():
            words = line.split(None, 2)
            if words and words[0] in found:
                found[words[0]] = int(words[1]) * 1024
    return list(found.values())

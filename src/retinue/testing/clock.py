"""A fake clock for tests, and a collector of events."""

import asyncio
import heapq
from itertools import count
from typing import TypeVar

from retinue.core.events import Event

_ROUNDS = 20
"""How many event loop iterations a woken sleeper gets before the next one wakes."""


class FakeClock:
    """A clock that stands still until `advance`; with `auto`, each sleep advances it instead of waiting."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000, auto: bool = False) -> None:
        self.slept: list[float] = []
        """Every requested duration, in order."""
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._auto = auto
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def steady_s(self) -> float:
        """Seconds since the clock was created."""
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._auto or seconds <= 0:
            self._elapsed_s += max(0.0, seconds)
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Advance the time: sleepers wake in order, each at its own time, including those that sleep again."""
        target = self._elapsed_s + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due_s, _, woken = heapq.heappop(self._sleepers)
            self._elapsed_s = max(self._elapsed_s, due_s)
            if not woken.done():
                woken.set_result(None)
                await self._settle()
        self._elapsed_s = target

    @property
    def sleeping(self) -> int:
        """The number of waiting sleepers."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def _settle(self) -> None:
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)


_E = TypeVar("_E")


class EventCollector:
    """A subscriber that stores all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self, *, live: bool = True) -> list[str]:
        """Return the event names in order; without `live`, deltas and progress are left out."""
        names = [type(event).__name__ for event in self.events]
        return names if live else [name for name in names if name not in ("MessageDelta", "ToolProgress")]

    def of(self, kind: type[_E]) -> list[_E]:
        return [event for event in self.events if isinstance(event, kind)]

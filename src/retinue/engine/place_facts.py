"""Looks at a place once for all the runs that start in it in the same moment: looking starts programs.

Knows nothing of what is looked at.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from retinue.core.clock import Clock
from retinue.engine.child_prompt import Place

FRESH_S = 1.0
"""A branch that was read so long ago is read again."""


class Surveys:
    """What is known of places, for a moment."""

    def __init__(self, look: Callable[[Path], Awaitable[Place]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._known: dict[Path, tuple[float, Place]] = {}
        self._underway: dict[Path, asyncio.Event] = {}

    async def find(self, cwd: Path) -> Place:
        """The place, seen not long ago."""
        while (place := self._recall(cwd)) is None and (event := self._underway.get(cwd)) is not None:
            await event.wait()
        if place is not None:
            return place
        # Whoever looks does so in its own task: when it is stopped, one of those who wait looks in its stead.
        event = self._underway[cwd] = asyncio.Event()
        try:
            place = await self._look(cwd)
            self._known = {path: seen for path, seen in self._known.items() if self._is_fresh(seen[0])}
            self._known[cwd] = (self._clock.steady_s(), place)
        finally:
            del self._underway[cwd]
            event.set()
        return place

    def _recall(self, cwd: Path) -> Place | None:
        seen = self._known.get(cwd)
        return seen[1] if seen is not None and self._is_fresh(seen[0]) else None

    def _is_fresh(self, seen_s: float) -> bool:
        return self._clock.steady_s() - seen_s < FRESH_S

"""Lets a few requests through at a time, in the order they came; knows nothing of what they are."""

import asyncio
from types import TracebackType
from typing import Self


class QueueFull(Exception):
    """Raised when too many wait already."""


class Throttle:
    """A gate that all web tools of a process share."""

    def __init__(self, most: int, waiting: int) -> None:
        self._gate = asyncio.Semaphore(most)
        self._most_waiting = waiting
        self._waiting = 0
        self.most = most

    async def __aenter__(self) -> Self:
        if self._gate.locked() and self._waiting >= self._most_waiting:
            raise QueueFull(f"the queue is full: {self.most} requests are running and {self._waiting} wait; try later")
        self._waiting += 1
        try:
            await self._gate.acquire()
        finally:
            self._waiting -= 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.release()

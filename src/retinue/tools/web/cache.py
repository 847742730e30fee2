"""Search results that are kept for a while; knows no provider."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The last few values by key; the one that was not wanted for longest goes first."""

    def __init__(self, entries: int, keep_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._keep_s = keep_s
        self._now = now
        self._values: OrderedDict[str, tuple[float, Value]] = OrderedDict()

    def get(self, key: str) -> Value | None:
        """What was put there, unless it is too old."""
        found = self._values.get(key)
        if found is None:
            return None
        if self._now() - found[0] > self._keep_s:
            del self._values[key]
            return None
        self._values.move_to_end(key)
        return found[1]

    def put(self, key: str, value: Value) -> None:
        if not self._entries:
            return
        self._values[key] = (self._now(), value)
        self._values.move_to_end(key)
        while len(self._values) > self._entries:
            self._values.popitem(last=False)


def make_key(provider: str, count: int, query: str) -> str:
    """The same for questions that differ in case and spaces only."""
    return f"{provider}\0{count}\0{' '.join(query.lower().split())}"

"""One lock per file, so that two runs of this process do not change it at the same time."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class PathLocks:
    """Locks by real path; one object is shared by all tools that write. Of one event loop."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncIterator[None]:
        """Wait until nobody else changes the file, under whatever name."""
        key = _to_key(path)
        lock, users = self._held.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._held[key]


def _to_key(path: str) -> str:
    return os.path.realpath(path)

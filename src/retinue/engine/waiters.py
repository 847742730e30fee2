"""Waiting for something that has an id, such as the end of a run. Knows nothing of what is waited for."""

import asyncio


class Bells:
    """One bell for each id: whoever waits at the moment hears it."""

    def __init__(self) -> None:
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, key: str, timeout_s: float | None = None) -> bool:
        """Return True when it rings, False when the time is over."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, []).append(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            # Whoever asks every second must not leave a future behind each time.
            waiters = self._waiters.get(key, [])
            if future in waiters:
                waiters.remove(future)
        return True

    def ring(self, key: str) -> None:
        """Let go on whoever waits."""
        for future in self._waiters.pop(key, ()):
            if not future.done():
                future.set_result(None)

"""The Clock interface: all time in the engine comes from it, so that tests can replace it."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def steady_s(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep; returns early only by cancellation."""
        ...

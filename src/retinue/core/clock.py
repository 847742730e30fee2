"""The Clock port: the engine's only sense of time, so that tests can bring their own."""

from typing import Protocol


class Clock(Protocol):
    """Time of day, a steady time for durations, and sleep."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def steady_s(self) -> float:
        """Seconds that never jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; ends early only by cancelling."""
        ...

"""The real clock. Tests bring their own."""

import asyncio
import time


class SystemClock:
    """Time as the machine has it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait; ends early only by cancelling."""
        await asyncio.sleep(seconds)

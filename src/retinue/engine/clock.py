"""The real clock, and fresh ids. Tests bring their own.

Session ids are UUIDs of version 7: they sort by time, as pi's do.
"""

import asyncio
import os
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


def make_uuid() -> str:
    """A UUID, version 7."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def make_run_id() -> str:
    """Seventeen hexadecimal digits."""
    return os.urandom(9).hex()[:17]

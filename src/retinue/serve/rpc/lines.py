"""Lines from a file descriptor without ever blocking the event loop, and with bounded memory.

Only LF ends a line; a CR before it is dropped. Knows nothing of what the lines say.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress

LONGEST = 32 * 1024 * 1024
"""Bytes of a line; a longer one is skipped, but for its end."""
_READ_SIZE = 256 * 1024


class Lines:
    """The lines of one input, usually standard input, for one reader."""

    def __init__(self, fd: int, longest: int = LONGEST) -> None:
        self._fd = fd
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._ready: asyncio.Future[None] | None = None
        self.is_closed = False

    def close(self) -> None:
        """End as if the input had ended; what was begun is dropped."""
        self.is_closed = True
        self._wake()

    async def __aiter__(self) -> AsyncIterator[bytes | None]:
        """The lines; None stands for one that was too long."""
        while not self.is_closed:
            data = await self._read()
            if not data:
                break
            *ends, rest = data.split(b"\n")
            for end in ends:
                self._keep(end)
                yield self._take()
                if self.is_closed:
                    return
            self._keep(rest)
        if self._size and not self.is_closed:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._longest:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _take(self) -> bytes | None:
        line = b"".join(self._parts) if self._size <= self._longest else None
        self._parts.clear()
        self._size = 0
        return None if line is None else line.removesuffix(b"\r")

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        try:
            loop.add_reader(self._fd, self._wake)
        except (OSError, ValueError):
            self._ready = None  # a plain file is always ready, and cannot be waited for
            await asyncio.sleep(0)
        try:
            if self._ready is not None:
                await self._ready
                loop.remove_reader(self._fd)
            if self.is_closed:
                return b""
            # What is ready does not block: the descriptor may be shared with others and keeps its mode.
            return os.read(self._fd, _READ_SIZE)
        except OSError:
            return b""
        finally:
            if self._ready is not None:
                with suppress(OSError, ValueError):
                    loop.remove_reader(self._fd)
            self._ready = None

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

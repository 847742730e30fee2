"""Non-blocking line reader with bounded memory. Only LF ends a line; a CR before it is dropped."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress

LONGEST = 32 * 1024 * 1024
"""Maximum bytes of a line; longer lines are skipped."""
_READ_SIZE = 256 * 1024


class Lines:
    """The lines of one input, usually standard input, for a single reader."""

    def __init__(self, fd: int, longest: int = LONGEST) -> None:
        self._fd = fd
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._ready: asyncio.Future[None] | None = None
        self.is_closed = False

    def close(self) -> None:
        """Behave as if the input had ended; a partial line is dropped."""
        self.is_closed = True
        self._wake()

    async def __aiter__(self) -> AsyncIterator[bytes | None]:
        """Yield lines; None stands for a line that was too long."""
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
            self._ready = None  # a regular file is always ready and cannot be polled
            await asyncio.sleep(0)
        try:
            if self._ready is not None:
                await self._ready
                loop.remove_reader(self._fd)
            if self.is_closed:
                return b""
            # The descriptor is ready, so this does not block. It stays in blocking mode because it may be shared.
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

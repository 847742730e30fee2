"""Bytes to a file descriptor without ever blocking the event loop, in order, and quiet when the reader is gone.

Knows nothing of what is written.
"""

import asyncio
import os
import select
from collections.abc import Callable

_SAFE_WRITE = 4096  # PIPE_BUF: what a writable pipe takes without blocking


class Outlet:
    """One output, usually standard output. When the reader stops reading, a thread waits for it."""

    def __init__(self, fd: int, on_closed: Callable[[], None] | None = None) -> None:
        self._fd = fd
        self._on_closed = on_closed
        self._waiting: list[bytes] = []
        self._flushing: asyncio.Future[None] | None = None
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Write now if that cannot block, else as soon as the reader is ready."""
        if self.is_closed:
            return
        if self._flushing is not None:
            self._waiting.append(data)
            return
        view = memoryview(data)
        while view:
            if not self._is_ready():
                self._waiting.append(bytes(view))
                self._flushing = asyncio.get_running_loop().run_in_executor(None, self._flush)
                self._flushing.add_done_callback(self._flushed)
                return
            try:
                view = view[os.write(self._fd, view[:_SAFE_WRITE]) :]
            except OSError:
                self._close()
                return

    @property
    def is_behind(self) -> bool:
        """Whether the reader has not yet taken all that was written."""
        return self._flushing is not None

    async def drain(self) -> None:
        """Wait until everything is written or the reader is gone."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
            await asyncio.sleep(0)

    def _is_ready(self) -> bool:
        try:
            return bool(select.select((), (self._fd,), (), 0)[1])
        except (OSError, ValueError):
            return True  # let the write itself find out

    def _flush(self) -> None:
        """In a thread: may block as long as the reader does."""
        while self._waiting:
            # One look only: the event loop adds to the list at any moment.
            taken = list(self._waiting)
            view = memoryview(b"".join(taken))
            while view:
                view = view[os.write(self._fd, view) :]
            del self._waiting[: len(taken)]

    def _flushed(self, done: "asyncio.Future[None]") -> None:
        self._flushing = None
        if not done.cancelled() and done.exception() is not None:
            self._close()
        elif self._waiting and not self.is_closed:
            self._flushing = asyncio.get_running_loop().run_in_executor(None, self._flush)
            self._flushing.add_done_callback(self._flushed)

    def _close(self) -> None:
        self.is_closed = True
        self._waiting.clear()
        if self._on_closed is not None:
            self._on_closed()

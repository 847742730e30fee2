"""Ordered, non-blocking writes to a file descriptor; ignores a closed reader."""

import asyncio
import os
import select
from collections.abc import Callable

_SAFE_WRITE = 4096  # PIPE_BUF: a writable pipe accepts this much without blocking


class Outlet:
    """One output, usually standard output. While the reader is slow, a thread does the writing."""

    def __init__(self, fd: int, on_closed: Callable[[], None] | None = None) -> None:
        self._fd = fd
        self._on_closed = on_closed
        self._waiting: list[bytes] = []
        self._flushing: asyncio.Future[None] | None = None
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Write now if that cannot block, else when the reader is ready."""
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
        """Whether written data is still waiting for the reader."""
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
            return True  # let the write itself fail

    def _flush(self) -> None:
        """Runs in a thread; blocks while the reader does."""
        while self._waiting:
            # Copy the list once: the event loop may append to it at any moment.
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

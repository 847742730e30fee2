"""Tells extensions what has happened: plain handlers at once, async ones in the background, in order and bounded.

Nothing a handler does reaches the run it is told about: failures are logged and counted, events beyond the bound are
dropped and counted.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Self

from retinue.core.events import Event, MessageDelta, MessageStarted, ToolProgress
from retinue.features.extensions.contained import Handler, get_log
from retinue.features.extensions.foreign import ForeignFailed, await_limited, call_foreign, find_place

MAX_WAITING = 1000
"""Events one async handler may be behind."""
MAX_LOGGED = 20
"""Failures told per extension; the others are counted only."""
SLOW_S = 0.1
"""A plain handler that takes longer holds up every run, and is told so."""
_PIECES = (MessageDelta, MessageStarted, ToolProgress)


class Handlers:
    """A listener for a bus, made of the handlers of extensions. Use it as an async context manager."""

    def __init__(self, handlers: Iterable[Handler], *, limit_s: float = 60.0, farewell_s: float = 2.0) -> None:
        """`limit_s` is for one event and one async handler; `farewell_s` to work off what waits at the end."""
        self._by_kind: dict[type, list[Handler]] = {}
        self._queues: dict[Handler, asyncio.Queue[Event]] = {}
        self._limit_s = limit_s
        self._farewell_s = farewell_s
        self._group = asyncio.TaskGroup()
        self._workers: list[asyncio.Task[None]] = []
        self.failures: Counter[str] = Counter()
        """By extension."""
        self.dropped: Counter[str] = Counter()
        for handler in handlers:
            for kind in handler.events:
                self._by_kind.setdefault(kind, []).append(handler)
            if handler.is_async:
                self._queues[handler] = asyncio.Queue(MAX_WAITING)

    @property
    def wants_pieces(self) -> bool:
        """Whether any of them listens to replies as they arrive; that costs every reply something."""
        return any(kind in self._by_kind for kind in _PIECES)

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def __call__(self, event: Event) -> None:
        """Tell everybody who wants to know. Does not raise and does not wait."""
        for handler in self._by_kind.get(type(event), ()):
            if not handler.is_async:
                self._tell_now(handler, event)
                continue
            try:
                self._queues[handler].put_nowait(event)
            except asyncio.QueueFull:
                self.dropped[handler.extension] += 1
                if self.dropped[handler.extension] == 1:
                    get_log(handler.extension).warning("a handler is too slow; events are left out")

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._workers = [self._group.create_task(self._serve(handler)) for handler in self._queues]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            async with asyncio.timeout(self._farewell_s if kind is None else 0):
                for queue in self._queues.values():
                    await queue.join()
        except TimeoutError:
            pass  # what is still waiting was only news
        finally:
            for worker in self._workers:
                worker.cancel()
            # The group is not told of an error, which it would wrap: its workers know nothing of it.
            await self._group.__aexit__(None, None, None)

    def _tell_now(self, handler: Handler, event: Event) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            result = call_foreign(lambda: handler.function(event))
        except ForeignFailed as failure:
            self._note(handler, failure)
            return
        if inspect.iscoroutine(result):
            result.close()
            self._note(handler, ForeignFailed("a handler that is to be awaited must be an async function"))
        if loop.time() - begun_s > SLOW_S:
            get_log(handler.extension).warning(
                "a handler took %.1f s and held up everything; make it async", loop.time() - begun_s
            )

    async def _serve(self, handler: Handler) -> None:
        queue = self._queues[handler]
        while True:
            event = await queue.get()
            try:
                await await_limited(partial(handler.function, event), self._limit_s)
            except ForeignFailed as failure:
                self._note(handler, failure)
            finally:
                queue.task_done()

    def _note(self, handler: Handler, failure: ForeignFailed) -> None:
        self.failures[handler.extension] += 1
        if self.failures[handler.extension] <= MAX_LOGGED:
            file, line = find_place(failure.cause, handler.path)
            get_log(handler.extension).error("%s:%s: a handler failed: %s", file, line or "?", failure)

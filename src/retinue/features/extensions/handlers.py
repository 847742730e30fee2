"""Call the event handlers of extensions: plain ones immediately, async ones in the background, in order and bounded."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from retinue.core.events import Event, MessageDelta, MessageStarted, ToolProgress
from retinue.features.extensions.contained import Handler, get_log
from retinue.features.extensions.foreign import ForeignFailed, await_limited, call_foreign, find_place

MAX_WAITING = 1000
"""Maximum number of events that wait for one async handler."""
MAX_LOGGED = 20
"""Maximum number of logged failures per extension; the rest is only counted."""
SLOW_S = 0.1
"""A plain handler that takes longer blocks all runs, so a warning is logged."""
_LEAVE = object()


class RunningHandlers:
    """Runs handlers; each async handler has a task in the group passed to `open`."""

    def __init__(self, *, limit_s: float = 60.0, drain_s: float = 2.0) -> None:
        """`limit_s` is for one call of an async handler; `drain_s` is for pending events at the end."""
        self._limit_s = limit_s
        self._drain_s = drain_s
        self._group: asyncio.TaskGroup | None = None
        self._queues: dict[Handler, asyncio.Queue[Any]] = {}
        self._tasks: dict[Handler, asyncio.Task[None]] = {}
        self.failures: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def open(self, group: asyncio.TaskGroup) -> None:
        """Start async handlers, including events that arrived before."""
        self._group = group
        for handler in self._queues:
            self._begin(handler)

    async def close(self) -> None:
        """Let handlers finish pending events for a limited time, then cancel them."""
        try:
            async with asyncio.timeout(self._drain_s):
                for queue in list(self._queues.values()):
                    await queue.join()
        except TimeoutError:
            pass  # pending events may be lost
        finally:
            self._group = None
            for task in self._tasks.values():
                task.cancel()

    def tell(self, handler: Handler, item: Any) -> None:
        """Call or queue one handler. Does not raise or wait."""
        if not handler.is_async:
            self._tell_now(handler, item)
            return
        if handler not in self._queues:
            self._queues[handler] = asyncio.Queue(MAX_WAITING)
            self._begin(handler)
        try:
            self._queues[handler].put_nowait(item)
        except asyncio.QueueFull:
            self.dropped[handler.extension] += 1
            if self.dropped[handler.extension] == 1:
                get_log(handler.extension).warning("a handler is too slow; events are dropped")

    def dismiss(self, handler: Handler) -> None:
        """Remove a handler; it still processes its pending events."""
        queue = self._queues.pop(handler, None)
        if queue is None:
            return
        try:
            queue.put_nowait(_LEAVE)
        except asyncio.QueueFull:
            if (task := self._tasks.get(handler)) is not None:
                task.cancel()

    def _begin(self, handler: Handler) -> None:
        if self._group is not None:
            task = self._group.create_task(self._serve(handler, self._queues[handler]))
            self._tasks[handler] = task
            task.add_done_callback(lambda done: self._tasks.pop(handler, None))

    def _tell_now(self, handler: Handler, item: Any) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            result = call_foreign(lambda: handler.function(item))
        except ForeignFailed as failure:
            self._note(handler, failure)
            return
        if inspect.iscoroutine(result):
            result.close()
            self._note(handler, ForeignFailed("a handler that returns a coroutine must be an async function"))
        if loop.time() - begun_s > SLOW_S:
            get_log(handler.extension).warning(
                "a handler blocked everything for %.1f s; make it async", loop.time() - begun_s
            )

    async def _serve(self, handler: Handler, queue: "asyncio.Queue[Any]") -> None:
        while (item := await queue.get()) is not _LEAVE:
            try:
                await await_limited(partial(handler.function, item), self._limit_s)
            except ForeignFailed as failure:
                self._note(handler, failure)
            finally:
                queue.task_done()

    def _note(self, handler: Handler, failure: ForeignFailed) -> None:
        self.failures[handler.extension] += 1
        if self.failures[handler.extension] <= MAX_LOGGED:
            file, line = find_place(failure.cause, handler.path)
            get_log(handler.extension).error("%s:%s: a handler failed: %s", file, line or "?", failure)


_PIECES = (MessageDelta, MessageStarted, ToolProgress)


class Handlers:
    """An event listener for a bus that passes events to handlers."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        audience: RunningHandlers | None,
        *,
        leaving_out: Collection[type] = (),
    ) -> None:
        """`leaving_out` are events that these handlers receive elsewhere."""
        self._audience = audience or RunningHandlers()
        self._by_kind: dict[type, list[Handler]] = {}
        for handler in handlers:
            for kind in handler.events:
                if kind not in leaving_out:
                    self._by_kind.setdefault(kind, []).append(handler)

    @property
    def wants_pieces(self) -> bool:
        """Whether any handler listens to streaming deltas, which makes every reply slower."""
        return any(kind in self._by_kind for kind in _PIECES)

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def __call__(self, event: Event) -> None:
        """Call all handlers of this event. Does not raise or wait."""
        for handler in self._by_kind.get(type(event), ()):
            self._audience.tell(handler, event)

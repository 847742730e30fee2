"""The cancel scope of one run: stops it with a reason, and never waits for code that ignores a cancel.

MUST NOT know models, tools or sessions.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from retinue.core.run import Reason

T = TypeVar("T")

STRAGGLER_S = 0.4
"""Seconds that cancelled work may take to clean up before it is abandoned: an abort is promised within 500 ms."""

_LOOKS = 8
"""How often activity is checked per idle time."""


class Scope:
    """Cancels the task that entered it, once, with a reason; has one timer each for wall and idle time."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timers: dict[Reason, asyncio.TimerHandle] = {}
        self._last_activity_s = 0.0
        self._pause_idle = _IdlePause(self)
        self._holds = 0
        self._held_s = 0.0
        """How long times have stood still; while they do, minus when that began."""
        self._wall_rest_s: float | None = None
        self._tools: dict[asyncio.Timeout, float] = {}
        """Time limits of tool calls; the value is the rest while times stand still."""

    def cancel(self, reason: Reason) -> bool:
        """Cancel what runs in the scope; False if nothing does or it was already cancelled."""
        if self._task is None or self.reason is not None:
            return False
        self.reason = reason
        self._task.cancel()
        return True

    def touch(self) -> None:
        """Restart the idle time."""
        task = self._task
        if task is not None:
            self._last_activity_s = task.get_loop().time()

    def pause_idle(self) -> "_IdlePause":
        """Return a context manager that suspends the idle time, for waits that have a limit of their own."""
        return self._pause_idle

    @property
    def is_active(self) -> bool:
        return self._task is not None

    def measure_s(self) -> float:
        """Return seconds of a clock that stands still while `hold` applies."""
        now_s = asyncio.get_running_loop().time()
        return (0.0 if self._holds else now_s) - self._held_s

    def hold(self) -> None:
        """Let all time limits stand still, until `release` is called as often."""
        self._holds += 1
        if self._holds > 1:
            return
        now_s = asyncio.get_running_loop().time()
        self._held_s -= now_s
        self._pause_idle.__enter__()
        if (timer := self._timers.pop(Reason.WALL_TIMEOUT, None)) is not None:
            self._wall_rest_s = timer.when() - now_s
            timer.cancel()
        for limit in self._tools:
            self._tools[limit] = (limit.when() or now_s) - now_s
            limit.reschedule(None)

    def release(self) -> None:
        """End one `hold`."""
        self._holds -= 1
        if self._holds:
            return
        now_s = asyncio.get_running_loop().time()
        self._held_s += now_s
        self._pause_idle.__exit__()
        if self._wall_rest_s is not None and self._task is not None:
            self._arm_wall(self._wall_rest_s)
        for limit, rest_s in self._tools.items():
            limit.reschedule(now_s + rest_s)

    @asynccontextmanager
    async def limit(self, limit_s: float) -> AsyncIterator[None]:
        """Raise TimeoutError in the body after this time, which stands still like all others."""
        async with asyncio.timeout(None if self._holds else limit_s) as limit:
            self._tools[limit] = limit_s
            try:
                yield
            finally:
                del self._tools[limit]

    async def run(
        self,
        work: Awaitable[T],
        *,
        wall_s: float | None = None,
        idle_s: float | None = None,
        measure: Callable[[], int] = lambda: 0,
    ) -> T | Reason:
        """Await the work; if `cancel` is called, return its reason instead of a result.

        A change of `measure` counts as activity, in addition to `touch`. A cancel from outside is raised as usual.
        """
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        self._task, self.reason, self._last_activity_s = task, None, loop.time()
        self._wall_rest_s = wall_s
        if wall_s is not None and not self._holds:
            self._arm_wall(wall_s)
        if idle_s is not None:
            self._arm_idle(loop, idle_s, measure)
        try:
            return await work
        except asyncio.CancelledError:
            if self.reason is None:
                raise
            task.uncancel()
            return self.reason
        finally:
            self._task = None
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _arm_wall(self, wall_s: float) -> None:
        loop, reason = asyncio.get_running_loop(), Reason.WALL_TIMEOUT
        self._timers[reason] = loop.call_later(wall_s, self.cancel, reason)

    def _arm_idle(self, loop: asyncio.AbstractEventLoop, idle_s: float, measure: Callable[[], int]) -> None:
        # One timer that checks the last activity: restarting a timer for each token would be slow.
        size = measure()

        def look() -> None:
            nonlocal size
            if size != (size := measure()):
                self.touch()
            rest_s = idle_s if self._pause_idle.depth else self._last_activity_s + idle_s - loop.time()
            if rest_s <= 0:
                self.cancel(Reason.IDLE_TIMEOUT)
            else:
                self._timers[Reason.IDLE_TIMEOUT] = loop.call_later(min(rest_s, idle_s / _LOOKS), look)

        self._timers[Reason.IDLE_TIMEOUT] = loop.call_later(idle_s / _LOOKS, look)


class _IdlePause:
    """Suspends the idle time while it is entered; one object per scope, entered by several tool calls at a time."""

    def __init__(self, scope: Scope) -> None:
        self.depth = 0
        self._scope = scope

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        self._scope.touch()


async def run_shielded(work: Coroutine[Any, Any, None], limit_s: float) -> None:
    """Run work that a cancel must not interrupt, for a limited time; a cancel is raised afterwards.

    The work must not raise. After the limit it is cancelled and abandoned; the caller knows what was not done.
    """
    loop = asyncio.get_running_loop()
    # In a task of its own: a cancel of the caller can then be told from a cancel of the work.
    task = loop.create_task(work)
    ends_s, cancel = loop.time() + limit_s, None
    while not task.done() and (rest_s := ends_s - loop.time()) > 0:
        try:
            await asyncio.wait([task], timeout=rest_s)
        except asyncio.CancelledError as error:
            cancel = error
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=STRAGGLER_S)
    if cancel is not None:
        raise cancel


def start_beside(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work beside the caller, who MUST await it or cancel it before a run ends."""
    # Not in a group: that has to be left in the task that entered it, and features are not.
    return asyncio.get_running_loop().create_task(work)


async def run_together(
    works: Sequence[Coroutine[Any, Any, T]], on_straggler: Callable[[int], None] | None = None
) -> list[T]:
    """Run coroutines concurrently and return their results in order. They must not raise.

    A cancel cancels all of them and abandons those that do not end in time: a tool that swallows its cancellation must
    not delay an abort. A TaskGroup would wait for it forever.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=STRAGGLER_S)
        for index, task in enumerate(tasks):
            if task in stuck and on_straggler is not None:
                on_straggler(index)
        raise
    return [task.result() for task in tasks]

"""Where runs execute. The local backend: tasks of this process, in one group that ends with it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self

from retinue.core.collector import calm_collector


class Backend(Protocol):
    """Executes runs. What it is given never raises."""

    def start(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin; returns at once."""
        ...

    def cancel(self, run_id: str) -> bool:
        """Cancel what is working on the run; False when nothing is."""
        ...

    async def wait(self) -> None:
        """Return when nothing is working any more."""
        ...


class LocalBackend:
    """One task per working run, all in one group: leaving it leaves nothing behind."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._excite: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._excite = calm_collector()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        try:
            await self._group.__aexit__(*error)
        finally:
            self._excite()

    def start(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin; returns at once."""
        task = self._group.create_task(work)
        self._tasks[run_id] = task
        task.add_done_callback(lambda done: self._forget(run_id, done))

    def cancel(self, run_id: str) -> bool:
        """Cancel what is working on the run; False when nothing is."""
        task = self._tasks.get(run_id)
        return task is not None and task.cancel()

    async def wait(self) -> None:
        """Return when nothing is working any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _forget(self, run_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(run_id) is task:
            del self._tasks[run_id]

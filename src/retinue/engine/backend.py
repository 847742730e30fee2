"""Where runs execute. The local backend: tasks of this process, in one group that ends with it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeAlias

from retinue.core.collector import calm_collector
from retinue.core.run import Run
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun

Arrange: TypeAlias = Callable[[LiveRun], None]
"""Called with a run when it has been built, before its first turn."""


def keep_setup(live: LiveRun) -> None:
    """Change nothing."""


class Backend(Protocol):
    """Executes runs. What it starts never raises."""

    def start(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin; returns at once."""
        ...

    def cancel(self, run_id: str) -> bool:
        """Cancel what is working on the run; False when nothing is."""
        ...

    async def prepare(self, run: Run, request: RunRequest) -> Arrange:
        """Get ready for a run before it is built; the result may add features to it. Raises RetinueError."""
        ...

    def goes_on(self, run: Run, request: RunRequest) -> bool:
        """Whether a run that an earlier process was working on is continued."""
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

    async def prepare(self, run: Run, request: RunRequest) -> Arrange:
        """Nothing is needed."""
        return keep_setup

    def goes_on(self, run: Run, request: RunRequest) -> bool:
        """A run ends with its process."""
        return False

    async def wait(self) -> None:
        """Return when nothing is working any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _forget(self, run_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(run_id) is task:
            del self._tasks[run_id]

"""Backends execute runs. `LocalBackend` runs each as a task of this process, in one task group."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeAlias

from retinue.core.collector import calm_collector
from retinue.core.run import Run
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun

Arrange: TypeAlias = Callable[[LiveRun], None]
"""Called with a run that was just built, before its first turn."""


def keep_setup(live: LiveRun) -> None:
    """An Arrange that changes nothing."""


class Backend(Protocol):
    """Executes runs. The work it starts never raises."""

    def start(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Start the work of a run and return at once."""
        ...

    def cancel(self, run_id: str) -> bool:
        """Cancel the work of a run; False if there is none."""
        ...

    async def prepare(self, run: Run, request: RunRequest) -> Arrange:
        """Prepare for a run before it is built; the result may add features to it. Raises RetinueError."""
        ...

    def goes_on(self, run: Run, request: RunRequest) -> bool:
        """Return whether a run is continued that an earlier process worked on."""
        ...

    def lasts(self, run: Run, request: RunRequest) -> bool:
        """Return whether a run of this process continues when the session is opened again."""
        ...


class LocalBackend:
    """Executes each run as a task in one group; leaving the context cancels and awaits all of them."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._restore_collector: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._restore_collector = calm_collector()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        try:
            await self._group.__aexit__(*error)
        finally:
            self._restore_collector()

    def start(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks[run_id] = task
        task.add_done_callback(lambda done: self._forget(run_id, done))

    def cancel(self, run_id: str) -> bool:
        task = self._tasks.get(run_id)
        return task is not None and task.cancel()

    async def prepare(self, run: Run, request: RunRequest) -> Arrange:
        return keep_setup

    def goes_on(self, run: Run, request: RunRequest) -> bool:
        return False

    def lasts(self, run: Run, request: RunRequest) -> bool:
        return False

    async def wait(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _forget(self, run_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(run_id) is task:
            del self._tasks[run_id]

"""Removes finished runs from the run list some time after their result was delivered.

Their session files stay. A run whose children are still active is kept, because the Manager refuses to forget it.
"""

from collections.abc import Iterable

from retinue.core.clock import Clock
from retinue.core.events import Event, MessageFinished, RunForgotten, RunQueued
from retinue.core.messages import CustomMessage
from retinue.core.run import Run
from retinue.engine.backend import Backend
from retinue.engine.manager import Manager
from retinue.engine.notify import CUSTOM_TYPE, list_told

KEEP_S = 600.0
LOOK_S = 60.0


class RunCleanup:
    """Forgets old finished runs of one main agent. Its timer stops while there are no runs."""

    def __init__(self, manager: Manager, backend: Backend, clock: Clock) -> None:
        self._manager = manager
        self._backend = backend
        self._clock = clock
        self._is_looking = False
        self._told: dict[str, int] = {}
        """For each run whose end was reported to the main agent: the attempt that was reported."""
        manager.root.bus.listen(self._hear, pieces=False, kinds=(RunQueued, RunForgotten, MessageFinished))

    def open(self, untold: Iterable[Run] = ()) -> None:
        """Start with the runs that exist. `untold` are finished runs that were not reported yet."""
        unknown = {run.id for run in untold}
        ended = (run for run in self._manager.list_runs() if run.status.is_final and run.id not in unknown)
        self._told.update({run.id: run.attempt for run in ended})
        self.sweep()
        self._begin()

    def sweep(self) -> None:
        """Forget runs that finished more than KEEP_S ago, children before their parents."""
        oldest_ms = self._clock.now_ms() - round(KEEP_S * 1000)
        for run in self._manager.list_runs():
            is_over = run.status.is_final and not run.questions
            if is_over and run.finished_ms <= oldest_ms and self._is_known(run):
                self._manager.forget(run.id)

    def _is_known(self, run: Run) -> bool:
        """Return whether the parent knows that the run ended, or has itself ended."""
        if run.is_read or not run.is_background or self._told.get(run.id) == run.attempt:
            return True
        parent = self._manager.find(run.parent_id)
        return run.depth > 1 and (parent is None or parent.status.is_final)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RunQueued):
            self._begin()
        elif isinstance(event, RunForgotten):
            self._told.pop(event.run_id, None)
        elif isinstance(event, MessageFinished):
            message = event.message
            if isinstance(message, CustomMessage) and message.custom_type == CUSTOM_TYPE:
                self._told.update(list_told(message.details))

    def _begin(self) -> None:
        if not self._is_looking and self._manager.list_runs():
            self._is_looking = True
            self._backend.start("retention", self._look())

    async def _look(self) -> None:
        while self._manager.list_runs():
            await self._clock.sleep(LOOK_S)
            self.sweep()
        self._is_looking = False

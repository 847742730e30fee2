"""Which finished runs are no longer listed: those that whoever started them knows of, a while after their end.

Their files stay. What a run that still works was started by stays too, since the Manager does not let it go.
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


class Retention:
    """Forgets the old runs of one crew; while there are none it does nothing."""

    def __init__(self, manager: Manager, backend: Backend, clock: Clock) -> None:
        self._manager = manager
        self._backend = backend
        self._clock = clock
        self._is_looking = False
        self._told: dict[str, int] = {}
        """The last attempt of each run whose end the main agent was told."""
        manager.root.bus.listen(self._hear, pieces=False, kinds=(RunQueued, RunForgotten, MessageFinished))

    def open(self, untold: Iterable[Run] = ()) -> None:
        """Begin with the runs there are; of those that have ended, all but these were told."""
        unknown = {run.id for run in untold}
        ended = (run for run in self._manager.list_runs() if run.status.is_final and run.id not in unknown)
        self._told.update({run.id: run.attempt for run in ended})
        self.sweep()
        self._begin()

    def sweep(self) -> None:
        """Forget what is old enough, children before their parents."""
        oldest_ms = self._clock.now_ms() - round(KEEP_S * 1000)
        for run in self._manager.list_runs():
            if run.status.is_final and run.finished_ms <= oldest_ms and self._is_known(run):
                self._manager.forget(run.id)

    def _is_known(self, run: Run) -> bool:
        """Whether its end has reached whoever started it, or nobody is there to be told."""
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

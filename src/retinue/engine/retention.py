"""Which finished runs are no longer listed: those whose result was read, a while after their end.

Their files stay. What a run that still works was started by stays too, since the Manager does not let it go.
"""

from retinue.core.clock import Clock
from retinue.core.events import Event, RunQueued
from retinue.engine.backend import Backend
from retinue.engine.manager import Manager

KEEP_S = 600.0
LOOK_S = 60.0


class Retention:
    """Forgets the old runs of one crew; while there are none it does nothing."""

    def __init__(self, manager: Manager, backend: Backend, clock: Clock) -> None:
        self._manager = manager
        self._backend = backend
        self._clock = clock
        self._is_looking = False
        manager.root.bus.listen(self._hear, pieces=False)

    def open(self) -> None:
        """Begin with the runs there are."""
        self.sweep()
        self._begin()

    def sweep(self) -> None:
        """Forget what is old enough, children before their parents."""
        oldest_ms = self._clock.now_ms() - round(KEEP_S * 1000)
        for run in self._manager.list_runs():
            if run.status.is_final and run.is_read and run.finished_ms <= oldest_ms:
                self._manager.forget(run.id)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RunQueued):
            self._begin()

    def _begin(self) -> None:
        if not self._is_looking and self._manager.list_runs():
            self._is_looking = True
            self._backend.start("retention", self._look())

    async def _look(self) -> None:
        while self._manager.list_runs():
            await self._clock.sleep(LOOK_S)
            self.sweep()
        self._is_looking = False

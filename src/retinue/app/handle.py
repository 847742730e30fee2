"""A run as the Python API shows it."""

from collections.abc import AsyncIterator

from retinue.core.events import Event, RunFinished
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.manager import Manager


class Handle:
    """One run of the crew: follow it, say something to it, wait for it, stop it."""

    def __init__(self, manager: Manager, run: Run) -> None:
        self._manager = manager
        self._run = run

    def __repr__(self) -> str:
        return f"<run {self.id} {self._run.agent} {self.status}>"

    @property
    def id(self) -> str:
        """Its id, by which it can be resumed."""
        return self._run.id

    @property
    def status(self) -> Status:
        """Where it stands now."""
        return self._run.status

    @property
    def run(self) -> Run:
        """All that is known about it; changes as it goes on."""
        return self._run

    async def events(self) -> AsyncIterator[Event]:
        """What happens in it from now on, until it is finished; pieces of replies included once it works."""
        from retinue.views.run_events import follow_run

        async for event in follow_run(self._manager, self._run):
            yield event
            if isinstance(event, RunFinished) and self._run.status.is_final:
                return

    async def steer(self, text: str) -> bool:
        """Say something before its next reply, or before it starts; False when it is finished, or a process of its
        own is at work, which hears nothing."""
        return self._manager.steer(self.id, text)

    async def stop(self) -> bool:
        """Stop it and all it started; False when it is finished."""
        return self._manager.stop(self.id, Reason.USER)

    async def wait(self, timeout_s: float | None = None) -> Outcome:
        """How it ended. Raises TimeoutError when it has not after the given time; it goes on then."""
        if not await self._manager.wait(self.id, timeout_s):
            raise TimeoutError(f"run {self.id} is not finished after {timeout_s} s")
        self._manager.read(self.id)
        assert self._run.outcome is not None
        return self._run.outcome

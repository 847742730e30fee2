"""The runs of a session for front ends: list, follow, steer, stop and read them.

Reads the state that the Manager keeps already, so it costs nothing while no front end is watching.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

from retinue.core.errors import SessionError
from retinue.core.events import Event, RunAnswered, RunAsked, RunFinished, RunQueued, RunStarted, RunSteered
from retinue.core.messages import Message
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.bus import Subscription
from retinue.engine.manager import Manager


async def follow_run(manager: Manager, run: Run) -> AsyncIterator[Event]:
    """Yield a run's lifecycle events, and all other events while it works."""
    events = Subscription()
    stops = []

    def attach() -> None:
        bus = manager.find_bus(run.id)
        if bus is not None:
            stops.append(bus.listen(lambda event: None if _is_life(event) else events.put(event)))

    def hear(event: Event) -> None:
        if event.run_id != run.id:
            return
        if isinstance(event, RunStarted):
            attach()
        if _is_life(event):
            events.put(event)

    stops.append(manager.root.bus.listen(hear, pieces=False))
    attach()
    try:
        if run.status.is_final:
            return
        async for event in events:
            yield event
    finally:
        for stop in stops:
            stop()


def _is_life(event: Event) -> bool:
    return isinstance(event, RunQueued | RunStarted | RunSteered | RunAsked | RunAnswered | RunFinished)


class SessionRuns:
    """Access to the runs of a session; empty without a manager."""

    def __init__(self, manager: Manager | None) -> None:
        self._manager = manager

    @property
    def runs(self) -> list[Run]:
        """All runs of the session, oldest first, and before them those that agents can no longer refer to."""
        return [] if self._manager is None else [*self._manager.list_past(), *self._manager.list_runs()[::-1]]

    def find(self, run_id: str) -> Run | None:
        if self._manager is None:
            return None
        return self._manager.find(run_id) or next((run for run in self._manager.list_past() if run.id == run_id), None)

    def steer(self, run_id: str, text: str) -> bool:
        """Send a message to a run; False if it has finished."""
        return self._manager is not None and self._manager.steer(run_id, text)

    def list_waiting(self, run_id: str) -> list[str]:
        """Messages to a run that it has not read."""
        return [] if self._manager is None else self._manager.list_waiting(run_id)

    def stop(self, run_id: str) -> bool:
        """Stop a run and its descendants; False if it has finished."""
        return self._manager is not None and self._manager.stop(run_id, Reason.USER)

    @property
    def can_leave(self) -> bool:
        """Whether a working run continues when the session is opened again, because its runner is durable."""
        return self._manager is not None and bool(self._manager.list_lasting())

    def leave(self, *, keeps_all: bool = False) -> None:
        """Let these runs continue after the session is closed, which must happen next; other runs are stopped.

        With `keeps_all` these continue when it is opened again.
        """
        if self._manager is not None:
            self._manager.leave(keeps_all=keeps_all)

    async def follow(self, run_id: str) -> AsyncIterator[Event]:
        """Yield a run's events from now on, until the caller stops iterating."""
        run = self.find(run_id)
        if self._manager is not None and run is not None:
            async for event in follow_run(self._manager, run):
                yield event

    def overhear(
        self, run_id: str, listener: Callable[[Event], None], *, pieces: bool = True, kinds: tuple[type[Any], ...] = ()
    ) -> bool:
        """Call a listener with a working run's events until the run ends. The listener MUST NOT block.

        `pieces`: include replies as they stream; `kinds`: only these event types. False if the run is not working.
        """
        bus = None if self._manager is None else self._manager.find_bus(run_id)
        if bus is not None:
            bus.listen(listener, pieces=pieces, kinds=kinds)
        return bus is not None

    def read_messages(self, run_id: str) -> list[Message]:
        """The messages of a run so far; empty if it has no session."""
        if self._manager is None:
            return []
        live = self._manager.live(run_id)
        if live is not None:
            return list(live.session.context().messages)
        if heard := self._manager.remote_children.list_messages(run_id):
            return heard
        run = self.find(run_id)
        path = "" if run is None or run.outcome is None else run.outcome.session_file
        return _load_messages(path) if path else []

    def find_model(self, run_id: str) -> str:
        """The model of a run as `provider/id`; empty if unknown."""
        live, run = None if self._manager is None else self._manager.live(run_id), self.find(run_id)
        if live is not None or run is None:
            return "" if live is None else live.setup.model.info.ref
        return str(run.invocation.get("model") or "")

    def find_window(self, run_id: str) -> int:
        """The context window of a working run's model in tokens; 0 if unknown."""
        run = self.find(run_id)
        if self._manager is None or run is None:
            return 0
        live = self._manager.live(self._manager.remote_children.find_host(run_id))
        # Of a run that was started in another process, only the name of the model is known.
        is_same = live is not None and (not run.is_guest or live.setup.model.info.ref == run.invocation.get("model"))
        return live.setup.model.info.context_window if live is not None and is_same else 0


def _load_messages(path: str) -> list[Message]:
    from retinue.engine.clock import SystemClock, make_uuid
    from retinue.sessions.log import Session

    try:
        session = Session.open(path, clock=SystemClock(), new_id=make_uuid, read_only=True)
    except SessionError:
        return []
    try:
        return list(session.context().messages)
    finally:
        session.close()


class Handle:
    """Controls one run: follow, steer, wait, stop."""

    def __init__(self, manager: Manager, run: Run) -> None:
        self._manager = manager
        self._run = run

    def __repr__(self) -> str:
        return f"<run {self.id} {self._run.agent} {self.status}>"

    @property
    def id(self) -> str:
        """The run's id, which can be used to resume it."""
        return self._run.id

    @property
    def status(self) -> Status:
        return self._run.status

    @property
    def run(self) -> Run:
        """The live Run object; it changes while the run works."""
        return self._run

    async def events(self) -> AsyncIterator[Event]:
        """Yield the run's events from now on until it has finished, including streamed pieces of replies."""
        async for event in follow_run(self._manager, self._run):
            yield event
            if isinstance(event, RunFinished) and self._run.status.is_final:
                return

    async def steer(self, text: str) -> bool:
        """Send a message before the next reply; False if the run has finished or works in a process that takes none."""
        return self._manager.steer(self.id, text)

    async def stop(self) -> bool:
        """Stop the run and its descendants; False if it has finished."""
        return self._manager.stop(self.id, Reason.USER)

    async def wait(self, timeout_s: float | None = None) -> Outcome:
        """Wait for the outcome. Raises TimeoutError after `timeout_s`; the run then continues."""
        # A finished run may have been removed from the list.
        if not (self._run.status.is_final or await self._manager.wait(self.id, timeout_s)):
            raise TimeoutError(f"run {self.id} has not finished after {timeout_s} s")
        self._manager.read(self.id)
        assert self._run.outcome is not None
        return self._run.outcome

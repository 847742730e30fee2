"""The crew as faces watch it: which runs there are now, what each has said, and words to any of them.

Reads what the Manager has folded already, so looking costs nothing while nobody looks.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

from retinue.core.errors import SessionError
from retinue.core.events import Event, RunFinished, RunQueued, RunStarted, RunSteered
from retinue.core.messages import Message
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.bus import Subscription
from retinue.engine.manager import Manager


async def follow_run(manager: Manager, run: Run) -> AsyncIterator[Event]:
    """Its life as the Manager tells it, and, while it works, all that happens in it."""
    events = Subscription(10_000)
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
    return isinstance(event, RunQueued | RunStarted | RunSteered | RunFinished)


class Lookout:
    """What can be seen of a crew, which may not be there."""

    def __init__(self, manager: Manager | None) -> None:
        self._manager = manager

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [] if self._manager is None else self._manager.list_runs()[::-1]

    def find(self, run_id: str) -> Run | None:
        """The run with this id."""
        return None if self._manager is None else self._manager.find(run_id)

    def steer(self, run_id: str, text: str) -> bool:
        """Say something to a run; False when it is finished."""
        return self._manager is not None and self._manager.steer(run_id, text)

    def stop(self, run_id: str) -> bool:
        """Stop a run and all it started; False when it is finished."""
        return self._manager is not None and self._manager.stop(run_id, Reason.USER)

    async def follow(self, run_id: str) -> AsyncIterator[Event]:
        """What happens in a run from now on, until nobody asks any more."""
        run = self.find(run_id)
        if self._manager is not None and run is not None:
            async for event in follow_run(self._manager, run):
                yield event

    def overhear(
        self, run_id: str, listener: Callable[[Event], None], *, pieces: bool = True, kinds: tuple[type[Any], ...] = ()
    ) -> bool:
        """Call a listener with all that happens in a working run until its end; it must not block.

        `pieces`: it wants replies as they arrive; `kinds`: only with these events. False when there is nothing to hear.
        """
        bus = None if self._manager is None else self._manager.find_bus(run_id)
        if bus is not None:
            bus.listen(listener, pieces=pieces, kinds=kinds)
        return bus is not None

    def read_messages(self, run_id: str) -> list[Message]:
        """What was said in a run so far, from its session; nothing when it has none."""
        if self._manager is None:
            return []
        live = self._manager.live(run_id)
        if live is not None:
            return list(live.session.context().messages)
        if heard := self._manager.guests.list_messages(run_id):
            return heard
        run = self._manager.find(run_id)
        path = "" if run is None or run.outcome is None else run.outcome.session_file
        return _load_messages(path) if path else []

    def find_model(self, run_id: str) -> str:
        """What a working run asks, as `provider/id`; empty when it is not known."""
        live = None if self._manager is None else self._manager.live(run_id)
        return "" if live is None else live.setup.model.info.ref

    def find_window(self, run_id: str) -> int:
        """The context window of a working run's model; 0 when it is not known."""
        run = self.find(run_id)
        if self._manager is None or run is None:
            return 0
        live = self._manager.live(self._manager.guests.find_host(run_id))
        # One that was started elsewhere is known by the name of its model only.
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

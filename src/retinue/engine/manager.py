"""The Manager: accepts requests, owns the queue and every live run of one main agent, and is the only one that spawns.

It knows no surface's words, no definition's fields and no feature: how a run is built is a port. What is known of
runs is in the Register, which is changed by nobody else.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol, TypeAlias

import msgspec

from retinue.core.clock import Clock
from retinue.core.events import (
    Compacted,
    Event,
    RetryScheduled,
    RunFinished,
    RunPlaced,
    RunRead,
    RunStarted,
    RunSteered,
    TurnStarted,
    Warned,
)
from retinue.core.fold import fold
from retinue.core.run import Grant, Outcome, Reason, Run, Status
from retinue.engine.admission import Admission
from retinue.engine.backend import Backend
from retinue.engine.bus import Bus
from retinue.engine.journal import RECORD
from retinue.engine.limits import Bounds
from retinue.engine.notify import Notifier
from retinue.engine.queue import Queue
from retinue.engine.recovery import Remains, Returning, interrupt
from retinue.engine.remote_children import Guests
from retinue.engine.request import RunRequest
from retinue.engine.run_config import RemoteRequest
from retinue.engine.run_table import Register
from retinue.engine.runner import LiveRun, contain
from retinue.engine.setup import RunSetup

Watch: TypeAlias = Callable[[LiveRun, Run, RunRequest, LiveRun], Callable[[], None]]
"""Begins to listen to a run, given its request and the run that started it; returns what ends that."""
_ORPHANED = Outcome(Status.INTERRUPTED, Reason.PARENT, error="the run that started it ended")


class Builder(Protocol):
    """Makes a run out of a request."""

    def open(self, run: Run, request: RunRequest, parent: LiveRun) -> AbstractAsyncContextManager[LiveRun]:
        """Build the run with everything around it; leaving undoes all of that."""
        ...

    def find_grant(self, run_id: str) -> Grant | None:
        """What a run may use now; None where nobody has decided that."""
        ...


class RemoteRuns(Protocol):
    """Lets runs of one main agent work on other machines."""

    @property
    def is_usual(self) -> bool:
        """Whether runs are sent whose definition does not say where they work."""
        ...

    def find_width(self) -> int:
        """How many runs of one parent work at once."""
        ...

    def send(self, setup: RunSetup, remote_request: RemoteRequest, manager: "Manager") -> LiveRun:
        """The live side of a run on another machine."""
        ...

    async def close(self) -> None:
        """End the connection; runs that were sent go on."""
        ...


class Manager:
    """The crew of one main agent."""

    def __init__(
        self,
        root: LiveRun,
        builder: Builder,
        backend: Backend,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        bounds: Bounds | None = None,
        watchers: Sequence[Watch] = (),
        open_notifier: "Callable[[Manager], Notifier] | None" = None,
    ) -> None:
        self.root = root
        self._builder = builder
        self.backend = backend
        self._clock = clock
        self._runs = Register(root.setup.run_id, root.bus)
        self.admission = Admission(bounds or Bounds(), self._runs, clock, new_id, root.session.path)
        self._queue = Queue(self.admission.bounds.max_concurrent)
        self._returning = Returning()
        self._live: dict[str, LiveRun] = {}
        self._begun: set[str] = set()
        self._stopping: dict[str, Reason] = {}
        self._causes: dict[str, str] = {}
        self._ends, self._news = Waiters(), Waiters()
        place = self.admission.find_file
        self.guests = Guests(self._runs, root, self._live, place=place, ring=self._ends.ring, clock=clock)
        """The runs that those have started that work elsewhere."""
        self._watchers = watchers
        self.notifier = None if open_notifier is None else open_notifier(self)
        """Learns of each finished run after it is on record, and wakes a run that expects a report."""

    def spawn(self, request: RunRequest, parent_id: str | None = None) -> Run:
        """Accept a run and return at once; it starts when there is room. Raises SpawnRefused.

        For an occasion that has had its run already that one is returned, whatever has become of it.
        """
        if request.occasion and (known := self._runs.find_occasion(request.occasion)) is not None:
            return known
        run, request = self.admission.admit(request, parent_id or self.root.setup.run_id, self.find_grant)
        self._accept(run, request)
        return run

    def resume(self, run_id: str, task: str, *, session_file: str = "") -> Run:
        """Let a finished run go on with a new task, queued and limited like any other. Raises SpawnRefused.

        With another `session_file` it knows nothing of what it did before.
        """
        run, request = self.admission.readmit(run_id, task, session_file)
        self._accept(run, request)
        return run

    def recover(self, remains: Remains, judge_dead: Callable[[Run], Outcome] = interrupt) -> list[Run]:
        """Take over what an earlier process left: what worked is interrupted, what waited waits again.

        `judge_dead` finds what is left of a run whose process died, unless the backend continues it.
        Returns the finished runs that nobody had been told about yet; the notifier does that.
        """
        runs = self._runs
        runs.take_over(remains)
        self.root.journal.take_over(remains.runs.values(), remains.ends, self.root.session.customs(RECORD))
        own = [run for run in remains.runs.values() if not run.is_guest]
        for run in own:
            is_working, request = run.status is Status.RUNNING, runs.find_request(run.id)
            if is_working and runs.has_parent(run) and self.backend.goes_on(run, request):
                self._queue.occupy(run.parent_id, run.id)
                if self._returning.add(run):
                    self._start(run)
            elif is_working:
                runs.tell_dead(RunFinished(run_id=run.id, outcome=judge_dead(run), at_ms=self._clock.now_ms()))
            elif run.status is Status.QUEUED:
                self._queue.add(run.parent_id, run.id)
        for run in own:
            if run.status is Status.QUEUED and not runs.has_parent(run):
                self._queue.remove(run.parent_id, run.id)
                runs.tell(RunFinished(run_id=run.id, outcome=_ORPHANED, at_ms=self._clock.now_ms()))
            if run.status.is_final:
                self.guests.settle(run.id, run.outcome)
        for parent_id in runs.list_parents():
            self._drain(parent_id)
        untold = remains.find_untold(self.root.session, self.root.setup.run_id, self._clock)
        if self.notifier is not None:
            self.notifier.recovered(untold)
        return untold

    def steer(self, run_id: str, text: str) -> bool:
        """Say something to a run before its next reply, or before it starts; False when it cannot hear it."""
        if not self.hears(run_id):
            return False
        self._runs.tell(RunSteered(run_id=run_id, text=text))
        live = self._live.get(run_id)
        if self._runs[run_id].is_guest:
            self.guests.speak(run_id, "steer", {"text": text})
        elif live is None:
            self._runs.say(run_id, text)
        else:
            live.steer(text)
            self.wake(run_id)
        return True

    def hears(self, run_id: str) -> bool:
        """Whether a run can be told something: not when it is finished, nor when a process of its own is at work."""
        run, live = self._runs.find(run_id), self._live.get(run_id)
        if run is None or run.status.is_final:
            return False
        return self.guests.can_speak(run_id) if run.is_guest else live is None or live.hears

    def stop(self, run_id: str, reason: Reason = Reason.USER, cause: str = "") -> bool:
        """Stop a queued or working run and all it started; False when it is finished or unknown.

        `cause` is what a run that ends with its parent gives as its error.
        """
        run = self._runs.find(run_id)
        if run is None or run.status.is_final:
            return False
        if run.is_guest:
            return self.guests.speak(run_id, "stop", {"reason": str(reason)})
        for child in self.children(run_id):
            if not child.is_guest:  # they end with it, where they are
                self.stop(child.id, Reason.PARENT, cause)
        if cause:
            self._causes.setdefault(run_id, cause)
        if run.status is Status.QUEUED and self._queue.remove(run.parent_id, run_id):
            self._finish(run, Outcome(Status.STOPPED, reason))
            return True
        self._stopping.setdefault(run_id, reason)
        live = self._live.get(run_id)
        # Work that has a slot but has not begun sees the wish itself: a cancel would keep it from ever running.
        if run_id in self._begun and (live is None or not live.abort(reason)):
            self.backend.cancel(run_id)
        return True

    def stop_all(self, reason: Reason = Reason.USER) -> int:
        """Stop everything; returns how many runs that were."""
        active = [run for run in self._runs.list_active() if not run.is_guest]
        # Those that only wait are many at times, and have nothing below them: one record for all of them.
        waiting = [run for run in active if run.status is Status.QUEUED and self._queue.remove(run.parent_id, run.id)]
        self._finish_all([(run, Outcome(Status.STOPPED, reason)) for run in waiting])
        return len(waiting) + sum(self.stop(run.id, reason) for run in reversed(active))

    async def wait(self, run_id: str, timeout_s: float | None = None) -> bool:
        """Return True when the run is finished, False when the time is over or there is no such run."""
        run = self._runs.find(run_id)
        return run is not None and (run.status.is_final or await self._ends.wait(run_id, timeout_s))

    def find_grant(self, run_id: str) -> Grant | None:
        """What a run may use now: recorded of whoever asks for a run, and of a run that begins."""
        return self._builder.find_grant(run_id)

    def read(self, run_id: str, *, by_call: str = "") -> None:
        """Note that a finished run's result has been read by whoever started it.

        `by_call` reads it: that is on record only when the call's result is, so that a crash between loses nothing.
        """
        run = self._runs.find(run_id)
        if run is None or not run.status.is_final or run.is_read:
            return
        reader = self.live(run.parent_id) if by_call else None
        if reader is None:
            self._runs.tell(RunRead(run_id=run_id))
        else:
            self._runs.tell_read(run_id, by_call, reader.bus)

    def forget(self, run_id: str) -> bool:
        """Drop a finished run from the list, unless something it started still works."""
        return self._runs.forget(run_id)

    def find(self, run_id: str) -> Run | None:
        """The run with this id."""
        return self._runs.find(run_id)

    def list_runs(self) -> list[Run]:
        """All runs, newest first."""
        return self._runs.list_newest()

    def children(self, run_id: str) -> list[Run]:
        """The runs that a run started."""
        return self._runs.list_children(run_id)

    def find_bus(self, run_id: str) -> Bus | None:
        """What a working run says; of one that was started elsewhere, what is heard of it."""
        live = self.live(run_id)
        return self.guests.find_bus(run_id) if live is None else live.bus

    def live(self, run_id: str) -> LiveRun | None:
        """The live side of a working run; the main agent's for its own id."""
        return self.root if run_id == self.root.setup.run_id else self._live.get(run_id)

    def is_full(self, parent_id: str | None = None) -> bool:
        """Whether a further run of this parent would have to wait."""
        return self._queue.is_full(parent_id or self.root.setup.run_id)

    @property
    def max_concurrent(self) -> int:
        """How many runs of one parent work at once."""
        return self._queue.limit

    def resize(self, max_concurrent: int) -> None:
        """Let more or fewer runs work at once; waiting ones start immediately."""
        for parent_id in self._queue.resize(max_concurrent):
            self._drain(parent_id)

    async def stay(self, run_id: str, live: LiveRun, outcome: Outcome) -> Outcome:
        """Keep a run that has come to its end until all it started has settled, letting it react to their reports."""
        self._welcome(run_id)
        if live is self.root:
            self._stopping.pop(run_id, None)  # of an earlier prompt
        self.guests.settle(run_id, outcome)  # of a run elsewhere nothing more is heard
        while outcome.status is Status.COMPLETED and (
            live.inbox or self._runs.has_active_below(run_id) or self._expects_report(run_id)
        ):
            if not live.inbox:
                await self._news.wait(run_id)
            if (reason := self._stopping.get(run_id)) is not None:
                return msgspec.structs.replace(outcome, status=Status.STOPPED, reason=reason)
            outcome = await live.wake() or outcome
        cause = "the budget of the agent that started it is spent" if outcome.reason is Reason.BUDGET else ""
        for child in self.children(run_id):
            self.stop(child.id, Reason.PARENT, cause)
        return outcome

    def dismiss(self, reason: Reason = Reason.USER) -> None:
        """Stop the main agent if it stays for what it has started: what that reports is not reacted to any more."""
        self._stopping[self.root.setup.run_id] = reason
        self.wake(self.root.setup.run_id)

    def wake(self, run_id: str) -> None:
        """Something was put into a run's inbox: if it is staying for its children, it goes on now."""
        self._news.ring(run_id)

    def _expects_report(self, run_id: str) -> bool:
        return self.notifier is not None and self.notifier.expects(run_id)

    def _accept(self, run: Run, request: RunRequest) -> None:
        self._runs.add(run, request)
        if request.skips_queue or not request.is_background:
            self._queue.occupy(run.parent_id, run.id)
            self._start(run)
        else:
            self._queue.add(run.parent_id, run.id)
            self._drain(run.parent_id)

    def _welcome(self, run_id: str) -> None:
        """A run is at work again: so may be what it had started."""
        if run_id in self._returning:
            for run in self._returning.settle(run_id):
                self._start(run)
            self._drain(run_id)

    def _give_up(self, run_id: str) -> None:
        """A run did not come back, and so nothing below it does."""
        self.guests.settle(run_id)
        for run in self._returning.settle(run_id):
            self._give_up(run.id)
            self._queue.release(run_id, run.id)
            self._finish(run, _ORPHANED)
        for run in self.children(run_id):
            self.stop(run.id, Reason.PARENT)

    def _drain(self, parent_id: str) -> None:
        if parent_id in self._returning:
            return
        while (run_id := self._queue.take(parent_id)) is not None:
            self._start(self._runs[run_id])

    def _start(self, run: Run) -> None:
        self.backend.start(run.id, self._work(run))

    async def _work(self, run: Run) -> None:
        """One run from its slot to its final state. Never raises."""
        request, outcome = self._runs.find_request(run.id), Outcome(Status.FAILED, Reason.CRASH)
        parent = self.live(run.parent_id) or self.root
        self._begun.add(run.id)
        try:
            if run.id in self._stopping:
                raise asyncio.CancelledError
            outcome = await contain(self._converse(run, request, parent))
        except asyncio.CancelledError:
            reason = self._stopping.get(run.id)
            status = Status.INTERRUPTED if reason is None else Status.STOPPED
            outcome = Outcome(status, reason or Reason.PARENT, error="cancelled", text=run.text)
            if (live := self._live.get(run.id)) is not None:
                outcome = _keep_rest(outcome, live.outcome)
        finally:
            self._begun.discard(run.id)
            self._live.pop(run.id, None)
            if run.id in self._returning:
                self._give_up(run.id)
            self.guests.settle(run.id, outcome)
            self._queue.release(run.parent_id, run.id)
            self._finish(run, outcome)
            self._drain(run.parent_id)

    async def _converse(self, run: Run, request: RunRequest, parent: LiveRun) -> Outcome:
        """Build a run and let it work."""
        arrange = await self.backend.prepare(run, request)
        async with self._builder.open(run, request, parent) as live, AsyncExitStack() as listening:
            arrange(live)
            for watch in self._watchers:
                listening.callback(watch(live, run, request, parent))
            self._live[run.id] = live
            listening.callback(live.bus.listen(lambda event: self._follow(run, event), pieces=False))
            # Nobody waits any more for a run that has come back: the call that did was cut off.
            is_detached = run.id in self._returning and not run.is_background
            now_ms, grant = self._clock.now_ms(), self.find_grant(run.id)
            self._runs.tell(RunStarted(run_id=run.id, at_ms=now_ms, grant=grant, is_detached=is_detached))
            for text in self._runs.take_said(run.id):
                live.steer(text)
            task = f"{request.preface}{request.task}"
            return await live.prompt(task, stay=lambda outcome: self.stay(run.id, live, outcome))

    def _follow(self, run: Run, event: Event) -> None:
        # Its start and end are told by the Manager, with its own times; the rest is what the run itself says.
        if not isinstance(event, RunStarted | RunFinished):
            fold(run, event)
        if isinstance(event, TurnStarted):
            self._welcome(run.id)
        if isinstance(event, Compacted | Warned | RunPlaced | RetryScheduled):
            self.root.bus.publish(event)

    def _finish(self, run: Run, outcome: Outcome) -> None:
        self._finish_all([(run, outcome)])

    def _finish_all(self, ends: Sequence[tuple[Run, Outcome]]) -> None:
        """Record the ends of runs, and tell whoever waits for them."""
        now_ms = self._clock.now_ms()
        events = [
            RunFinished(run_id=run.id, outcome=self._add_cause(run, outcome), at_ms=now_ms) for run, outcome in ends
        ]
        for run, _ in ends:
            self._stopping.pop(run.id, None)
        self._runs.tell_all(events)
        for run, _ in ends:
            self._ends.ring(run.id)
            if self.notifier is not None:
                self.notifier.finished(run)
            self.wake(run.parent_id)

    def _add_cause(self, run: Run, outcome: Outcome) -> Outcome:
        cause = self._causes.pop(run.id, "")
        is_told = cause and outcome.reason is Reason.PARENT
        return msgspec.structs.replace(outcome, error=cause) if is_told else outcome


def _keep_rest(outcome: Outcome, left: Outcome) -> Outcome:
    """The outcome of a run that was cut off, with what it leaves all the same."""
    error = left.error or outcome.error
    return msgspec.structs.replace(left, status=outcome.status, reason=outcome.reason, error=error)


class Waiters:
    """Whoever waits for something that has an id, such as the end of a run."""

    def __init__(self) -> None:
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, key: str, timeout_s: float | None = None) -> bool:
        """Return True when it rings, False when the time is over."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, []).append(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            # Whoever asks every second must not leave a future behind each time.
            waiters = self._waiters.get(key, [])
            if future in waiters:
                waiters.remove(future)
        return True

    def ring(self, key: str) -> None:
        """Let go on whoever waits."""
        for future in self._waiters.pop(key, ()):
            if not future.done():
                future.set_result(None)

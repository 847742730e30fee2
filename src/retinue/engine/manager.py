"""The Manager accepts requests and owns the queue and all live runs of one main agent. Only it starts runs.

MUST NOT know surfaces, definitions or features: the Builder port builds a run. The state of the runs is kept in the
RunTable, which only the Manager changes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from typing import Protocol, TypeAlias

import msgspec

from retinue.core.clock import Clock
from retinue.core.events import (
    Compacted,
    Event,
    RetryScheduled,
    RunAnswered,
    RunContinued,
    RunFinished,
    RunPaused,
    RunPlaced,
    RunRead,
    RunStarted,
    RunSteered,
    TurnStarted,
    Warned,
)
from retinue.core.fold import fold
from retinue.core.run import Grant, Outcome, Question, Reason, Run, Status
from retinue.engine.admission import Admission
from retinue.engine.backend import Backend
from retinue.engine.bus import Bus
from retinue.engine.journal import RECORD
from retinue.engine.limits import Bounds
from retinue.engine.notify import Notifier
from retinue.engine.parent_questions import ParentQuestions
from retinue.engine.prompt import inherit_context
from retinue.engine.queue import Queue
from retinue.engine.recovery import ResumableRuns, StoredRuns, interrupt
from retinue.engine.remote_children import RemoteChildren
from retinue.engine.request import RunRequest
from retinue.engine.run_config import RemoteRequest
from retinue.engine.run_table import RunTable
from retinue.engine.runner import LiveRun, contain
from retinue.engine.setup import RunSetup

Watch: TypeAlias = Callable[[LiveRun, Run, RunRequest, LiveRun], Callable[[], None]]
"""Starts to observe a run: takes the live run, its record, its request and its parent; returns a stop function."""
_SHOWN_ABOVE = frozenset((Compacted, Warned, RunPlaced, RetryScheduled, RunPaused, RunContinued))
"""Events of a run that the main agent's listeners get, too."""
_ORPHANED = Outcome(Status.INTERRUPTED, Reason.PARENT, error="the run that started it ended")


class Builder(Protocol):
    """Builds a run from a request."""

    def open(self, run: Run, request: RunRequest, parent: LiveRun) -> AbstractAsyncContextManager[LiveRun]:
        """Build the run and set up everything it needs; leaving the context undoes that."""
        ...

    def find_grant(self, run_id: str) -> Grant | None:
        """Return what a run may use now; None if that was never decided."""
        ...


class RemoteRuns(Protocol):
    """Sends runs of one main agent to other machines."""

    @property
    def is_usual(self) -> bool:
        """Whether runs are sent if their definition does not name a runner."""
        ...

    def find_width(self) -> int: ...

    def send(self, setup: RunSetup, remote_request: RemoteRequest, manager: "Manager") -> LiveRun:
        """Send a run to another machine and return its local counterpart."""
        ...

    async def close(self) -> None:
        """Close the connection; runs that were sent continue."""
        ...


class Manager:
    """Starts, queues, stops and tracks the runs of one main agent."""

    def __init__(  # noqa: PLR0913 - each is used by name
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
        has_user: Callable[[], bool] = lambda: False,
        is_blocked: Callable[[Run, RunRequest, LiveRun], bool] = lambda run, request, parent: False,
    ) -> None:
        """`has_user` returns whether a user can answer questions of runs.

        `is_blocked` returns whether a usage limit is reached that a queued run would have to wait for.
        """
        self._is_blocked = is_blocked
        self.root = root
        self._builder = builder
        self.backend = backend
        self._clock = clock
        self._runs = RunTable(root.setup.run_id, root.bus)
        self.admission = Admission(bounds or Bounds(), self._runs, clock, new_id, root.session.path)
        self._queue = Queue(self.admission.bounds.max_concurrent)
        self._returning = ResumableRuns()
        self._live: dict[str, LiveRun] = {}
        self._begun: set[str] = set()
        self._stopping: dict[str, Reason] = {}
        self._causes: dict[str, str] = {}
        self.pauses: dict[str, RunPaused] = {}
        """The runs that wait for a usage limit, and what they wait for."""
        self._holds: dict[str, list[Callable[[], None]]] = {}
        """For each run that waits for a usage limit: ends the hold on the times of the runs above it."""
        self._left: set[str] | None = None
        """Runs that continue when the session is opened again; None unless they are left."""
        self._ends, self._news = Waiters(), Waiters()
        place = self.admission.find_file
        self.remote_children = RemoteChildren(
            self._runs, root, self._live, place=place, ring=self._ends.ring, clock=clock
        )
        """The runs that were started by runs on other machines."""
        self._watchers = watchers
        self.notifier = None if open_notifier is None else open_notifier(self)
        """Notified of each run that finished, after that is recorded; wakes a parent that waits for a report."""
        self.questions = ParentQuestions(
            self, self._runs, backend, clock, find_limit_s=lambda: self.admission.bounds.answer_s, has_user=has_user
        )
        self._waiting: dict[str, asyncio.Future[None]] = {}
        """Runs that have their answer and wait for a slot."""
        self._detached: set[str] = set()
        """Runs that were continued although their callers are gone."""
        self._adopted: set[str] = set()
        """Runs whose questions are older than this process: their parents may have ended with the earlier one."""

    def spawn(self, request: RunRequest, parent_id: str | None = None) -> Run:
        """Accept a run and return at once; it starts when a slot is free. Raises SpawnRefused.

        If a run was already accepted for the request's occasion, that run is returned, in whatever state it is.
        """
        if request.occasion and (known := self._runs.find_occasion(request.occasion)) is not None:
            return known
        parent_id = parent_id or self.root.setup.run_id
        run, request = self.admission.admit(request, parent_id, self.find_grant)
        if request.context == "summary" and not request.preface and (live := self.live(parent_id)) is not None:
            preface = inherit_context(live.session.context().messages)
            request = msgspec.structs.replace(request, preface=preface)
        self._accept(run, request)
        return run

    def resume(self, run_id: str, task: str, *, session_file: str = "") -> Run:
        """Continue a finished run with a new task, queued and limited like any other. Raises SpawnRefused.

        With another `session_file` it remembers nothing of its earlier work.
        """
        run, request = self.admission.readmit(run_id, task, session_file)
        if self.questions.withdraw(self._runs[run_id]):
            run = msgspec.structs.replace(run, questions=())
        self._accept(run, request)
        return run

    @asynccontextmanager
    async def step_aside(self, run: Run) -> AsyncIterator[None]:
        """Let other runs have the slot of a run that waits for an answer; leaving the context waits for a slot.

        The run is not idle meanwhile, nor are those that wait for it in a call.
        """
        parent_id, above = run.parent_id, run
        with ExitStack() as pause_idle:
            while (live := self.live(above.id)) is not None:
                pause_idle.enter_context(live.setup.pause_idle())
                parent = self._runs.find(above.parent_id)
                if above.is_background or parent is None:
                    break
                above = parent
            self._queue.release(parent_id, run.id)
            self._drain(parent_id)
            yield
            if run.questions:
                return  # another call of the same reply still waits
            if not run.is_background:
                self._queue.occupy(parent_id, run.id)
                return
            slot = self._waiting[run.id] = asyncio.get_running_loop().create_future()
            self._queue.add(parent_id, run.id, is_first=True)
            self._drain(parent_id)
            try:
                await slot
            finally:
                self._waiting.pop(run.id, None)
                self._queue.remove(parent_id, run.id)

    def go_on(self, run: Run, text: str) -> None:
        """Continue a run whose process died while it waited for an answer. Raises SpawnRefused."""
        if run.status.is_final:
            again, request = self.admission.readmit(run.id, text, "")
            self._detached.add(run.id)
            self._accept(again, request)
        else:
            self.steer(run.id, text)  # another answer has continued it

    def show(self, run: Run, question: Question, closed: RunAnswered | None = None) -> None:
        """Show a parent a question of its run, or that it is closed."""
        if self.notifier is not None:
            self.notifier.asked(run, question, closed)
        if closed is not None and closed.by == "withdrawn":
            self.wake(self.find_reader(run))  # it may have waited for this run only

    def find_reader(self, run: Run) -> str:
        """Return the run that reads what this one asks and reports: its parent, unless that ended with its process."""
        return self._runs.find_reader(run) if run.id in self._adopted else run.parent_id

    def recover(self, remains: StoredRuns, judge_dead: Callable[[Run], Outcome] = interrupt) -> list[Run]:
        """Restore the runs of an earlier process: working runs are interrupted, queued runs are queued again.

        `judge_dead` returns the outcome of a run whose process died, unless the backend continues that run. Returns the
        finished runs that were not reported yet; the notifier reports them.
        """
        runs = self._runs
        runs.take_over(remains)
        self.root.journal.take_over(remains.runs.values(), remains.ends, self.root.session.customs(RECORD))
        own = [run for run in remains.runs.values() if not run.is_guest]
        for run in own:
            is_working = run.status in (Status.RUNNING, Status.WAITING)
            request = runs.find_request(run.id)
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
                self.remote_children.settle(run.id, run.outcome)
        for parent_id in runs.list_parents():
            self._drain(parent_id)
        untold = remains.find_untold(self.root.session, self.root.setup.run_id, self._clock)
        if self.notifier is not None:
            self.notifier.recovered(untold)
        self._adopted = {run.id for run in runs.list_asking()}
        self.questions.recover(remains.asked)
        return untold

    def steer(self, run_id: str, text: str) -> bool:
        """Send a message to a run, before its next reply or before it starts; False if it cannot receive messages."""
        if not self.hears(run_id):
            return False
        self._runs.tell(RunSteered(run_id=run_id, text=text))
        live = self._live.get(run_id)
        if self._runs[run_id].is_guest:
            self.remote_children.speak(run_id, "steer", {"text": text})
        elif live is None:
            self._runs.say(run_id, text)
        else:
            live.steer(text)
            self.wake(run_id)
        return True

    def list_waiting(self, run_id: str) -> list[str]:
        """Return the messages to a run that it has not read."""
        live = self._live.get(run_id)
        return self._runs.list_said(run_id) if live is None else [text for words in live.inbox.words for text in words]

    def hears(self, run_id: str) -> bool:
        """Return whether a run can receive messages: not if it is finished or works in a process of its own."""
        run, live = self._runs.find(run_id), self._live.get(run_id)
        if run is None or run.status.is_final:
            return False
        return self.remote_children.can_speak(run_id) if run.is_guest else live is None or live.hears

    def stop(self, run_id: str, reason: Reason = Reason.USER, cause: str = "") -> bool:
        """Stop a queued or working run and all runs it started; False if it is finished or unknown.

        `cause` becomes the error of each run that stops because its parent does.
        """
        run = self._runs.find(run_id)
        if run is None or run.status.is_final:
            return run is not None and self.questions.withdraw(run)
        if run.is_guest:
            return self.remote_children.speak(run_id, "stop", {"reason": str(reason)})
        for child in self.children(run_id):
            if not child.is_guest:  # remote children stop with it on their machine
                self.stop(child.id, Reason.PARENT, cause)
        if cause:
            self._causes.setdefault(run_id, cause)
        if run.status is Status.QUEUED and self._queue.remove(run.parent_id, run_id):
            self._finish(run, Outcome(Status.STOPPED, reason))
            return True
        self._stopping.setdefault(run_id, reason)
        live = self._live.get(run_id)
        # A task that has a slot but has not begun checks `_stopping` itself: a cancel would keep it from ever running.
        if run_id in self._begun and (live is None or not live.abort(reason)):
            self.backend.cancel(run_id)
        return True

    def stop_all(self, reason: Reason = Reason.USER) -> int:
        active = [run for run in self._runs.list_active() if not run.is_guest]
        # There can be thousands of queued runs; none has children, so all are recorded at once.
        waiting = [run for run in active if run.status is Status.QUEUED and self._queue.remove(run.parent_id, run.id)]
        self._finish_all([(run, Outcome(Status.STOPPED, reason)) for run in waiting])
        return len(waiting) + sum(self.stop(run.id, reason) for run in reversed(active))

    def list_lasting(self) -> list[Run]:
        """Return the active runs that continue when the session is opened again."""
        above, lasting = {self.root.setup.run_id}, []
        for run in self._runs.list_active():
            if not run.is_guest and run.parent_id in above and self.backend.lasts(run, self._runs.find_request(run.id)):
                above.add(run.id)
                lasting.append(run)
        return lasting

    def leave(self, *, keeps_all: bool = False) -> None:
        """Prepare to close without an end of the lasting runs: nothing more is recorded of them; others are stopped.

        With `keeps_all` no run is stopped: a usage limit is reached, and all continue when the session is opened again.
        """
        lasting = self._runs.list_active() if keeps_all else self.list_lasting()
        self._left = left = {run.id for run in lasting}
        for run in reversed(self._runs.list_active()):
            if not run.is_guest and run.id not in left:
                self.stop(run.id)

    def count_pauses(self) -> list[tuple[str, int, int]]:
        """Return each provider whose usage limit is waited for, until when, and how many agents wait for it."""
        waits = [(event.provider, event.until_ms) for event in self.pauses.values()]
        if self.root.limit_wait.is_waiting and (own := self.root.limit_wait.pause) is not None:
            waits.append((own.provider, own.until_ms))
        until = {provider: until_ms for provider, until_ms in sorted(waits)}
        return [(each, until[each], sum(provider == each for provider, _ in waits)) for each in until]

    def fall_back(self) -> int:
        """Let all runs that wait for a usage limit use their fallback models now; returns how many can."""
        lives = [self.root, *(live for run_id in self.pauses if (live := self._live.get(run_id)) is not None)]
        waits = [live.limit_wait for live in lives if live.limit_wait.can_fall_back]
        for wait in waits:
            wait.fall_back()
        return len(waits)

    @property
    def is_stalled(self) -> bool:
        """Whether a usage limit keeps everything from working."""
        is_paused = bool(self.pauses) or self.root.limit_wait.is_waiting
        return is_paused and self.root.is_still and all(self._is_still(run) for run in self._runs.list_active())

    def _is_still(self, run: Run) -> bool:
        live = self._live.get(run.id)
        if run.is_guest and run.status is Status.RUNNING:
            # Only the other machine knows what it does, and says so if nothing below the run that was sent can work.
            pause = self.pauses.get(self.remote_children.find_host(run.id))
            return pause is not None and not pause.gate
        if live is None:
            return run.id not in self._begun and (run.status is not Status.RUNNING or run.id in self._returning)
        # A probe is a call that may end the wait.
        return not live.limit_wait.is_asking if run.status is Status.WAITING else live.is_still and not live.inbox

    @property
    def is_left(self) -> bool:
        return self._left is not None

    async def wait(self, run_id: str, timeout_s: float | None = None) -> bool:
        """Return True when the run is finished, False on timeout or if the run is unknown."""
        run = self._runs.find(run_id)
        return run is not None and (run.status.is_final or await self._ends.wait(run_id, timeout_s))

    def find_grant(self, run_id: str) -> Grant | None:
        """Return what a run may use now; recorded when the run starts and when it requests a child."""
        return self._builder.find_grant(run_id)

    def read(self, run_id: str, *, by_call: str = "") -> None:
        """Mark the result of a finished run as read by its parent.

        With `by_call` this is recorded only together with the result of that tool call, so that a crash in between
        loses nothing.
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
        """Remove a finished run from the list; refused while a run below it is active."""
        run = self._runs.find(run_id)
        if run is not None and run.status.is_final:
            self.questions.withdraw(run)
        return self._runs.forget(run_id)

    def find(self, run_id: str) -> Run | None:
        return self._runs.find(run_id)

    def find_task(self, run_id: str) -> str:
        """Return the last task of a known run."""
        return self._runs.find_request(run_id).task

    def list_runs(self) -> list[Run]:
        """Return all runs, newest first."""
        return self._runs.list_newest()

    def list_past(self) -> list[Run]:
        """Return the runs that were forgotten, in the order they were."""
        return list(self._runs.past.values())

    def children(self, run_id: str) -> list[Run]:
        return self._runs.list_children(run_id)

    def find_bus(self, run_id: str) -> Bus | None:
        """Return the event bus of a working run; for a run on another machine, the bus of what it reports."""
        live = self.live(run_id)
        return self.remote_children.find_bus(run_id) if live is None else live.bus

    def live(self, run_id: str) -> LiveRun | None:
        """Return the live object of a working run, or of the main agent for its id."""
        return self.root if run_id == self.root.setup.run_id else self._live.get(run_id)

    def is_full(self, parent_id: str | None = None) -> bool:
        """Return whether a further run of this parent would have to wait."""
        return self._queue.is_full(parent_id or self.root.setup.run_id)

    @property
    def max_concurrent(self) -> int:
        return self._queue.limit

    def resize(self, max_concurrent: int) -> None:
        """Change how many runs of one parent may work at once; queued runs start immediately if there is room."""
        for parent_id in self._queue.resize(max_concurrent):
            self._drain(parent_id)

    async def stay(self, run_id: str, live: LiveRun, outcome: Outcome) -> Outcome:
        """Keep a run open until all runs it started have ended, and let it react to their reports."""
        self._welcome(run_id)
        if live is self.root:
            self._stopping.pop(run_id, None)  # from an earlier prompt
        self.remote_children.settle(run_id, outcome)  # a remote run reports nothing more
        while outcome.status is Status.COMPLETED and (
            live.inbox or self._runs.has_active_below(run_id) or self._expects_report(run_id)
        ):
            if not live.inbox:
                self.questions.settle_below(run_id)
                await self._news.wait(run_id)
            if (reason := self._stopping.get(run_id)) is not None:
                return msgspec.structs.replace(outcome, status=Status.STOPPED, reason=reason)
            outcome = await live.wake() or outcome
        if outcome.reason is Reason.LIMIT:
            return outcome  # they wait too, and are continued with it
        cause = "the budget of the agent that started it is spent" if outcome.reason is Reason.BUDGET else ""
        for child in self.children(run_id):
            self.stop(child.id, Reason.PARENT, cause)
        return outcome

    def dismiss(self, reason: Reason = Reason.USER) -> None:
        """Stop the main agent if it waits for its children; it does not react to their reports any more."""
        self._stopping[self.root.setup.run_id] = reason
        self.wake(self.root.setup.run_id)

    def wake(self, run_id: str) -> None:
        """Let a run continue that waits for its children: its inbox has changed."""
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
        """A continued run works again: continue its children too."""
        if run_id in self._returning:
            for run in self._returning.settle(run_id):
                self._start(run)
            self._drain(run_id)

    def _give_up(self, run_id: str) -> None:
        """A run could not be continued: end everything below it."""
        self.remote_children.settle(run_id)
        for run in self._returning.settle(run_id):
            self._give_up(run.id)
            self._queue.release(run_id, run.id)
            self._finish(run, _ORPHANED)
        for run in self.children(run_id):
            self.stop(run.id, Reason.PARENT)

    def _drain(self, parent_id: str) -> None:
        if parent_id in self._returning or self.is_left:
            return
        parent, runs = self.live(parent_id) or self.root, self._runs

        def is_blocked(run_id: str) -> bool:
            is_new = run_id not in self._waiting
            return is_new and self._is_blocked(runs[run_id], runs.find_request(run_id), parent)

        while (run_id := self._queue.take(parent_id, is_blocked)) is not None:
            if (slot := self._waiting.pop(run_id, None)) is None:
                self._start(runs[run_id])
            elif not slot.done():
                slot.set_result(None)

    def start_queued(self) -> None:
        """Start the queued runs that can work: a usage limit has changed."""
        for parent_id in self._runs.list_parents():
            self._drain(parent_id)

    def _start(self, run: Run) -> None:
        self.backend.start(run.id, self._work(run))

    async def _work(self, run: Run) -> None:
        """Execute one run from its slot to its final state. Never raises."""
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
            if run.id not in (self._left or ()):
                self._end(run, outcome)

    def _end(self, run: Run, outcome: Outcome) -> None:
        if run.id in self._returning:
            self._give_up(run.id)
        self.remote_children.settle(run.id, outcome)
        self._unpause(run)
        self._queue.release(run.parent_id, run.id)
        self._finish(run, outcome)
        self._drain(run.parent_id)

    async def _converse(self, run: Run, request: RunRequest, parent: LiveRun) -> Outcome:
        arrange = await self.backend.prepare(run, request)
        async with self._builder.open(run, request, parent) as live, AsyncExitStack() as listening:
            arrange(live)
            for watch in self._watchers:
                listening.callback(watch(live, run, request, parent))
            self._live[run.id] = live
            listening.callback(live.bus.listen(lambda event: self._follow(run, event), pieces=False))
            # Nobody waits for a continued run: the tool call that waited was interrupted with the old process.
            is_detached = (run.id in self._returning or run.id in self._detached) and not run.is_background
            self._detached.discard(run.id)
            began_ms, grant = self._clock.now_ms(), self.find_grant(run.id)
            if run.id in self._returning:
                began_ms = run.started_ms or began_ms
            self._runs.tell(RunStarted(run_id=run.id, at_ms=began_ms, grant=grant, is_detached=is_detached))
            for text in self._runs.take_said(run.id):
                live.steer(text)
            task = f"{request.preface}{request.task}"
            return await live.prompt(task, stay=lambda outcome: self.stay(run.id, live, outcome))

    def _follow(self, run: Run, event: Event) -> None:
        kind = type(event)
        # The Manager itself publishes the start and the end, with its own times.
        if kind is not RunStarted and kind is not RunFinished:
            fold(run, event)
        if kind is TurnStarted:
            self._welcome(run.id)
        elif kind in _SHOWN_ABOVE:
            if isinstance(event, RunPaused):
                self._pause(run, event)
            elif isinstance(event, RunContinued):
                self._unpause(run)
                self._queue.occupy(run.parent_id, run.id)
            self.root.bus.publish(event)
            if isinstance(event, RunPaused):
                self._drain(run.parent_id)

    def _pause(self, run: Run, event: RunPaused) -> None:
        """Give the slot of a run that waits to another; the runs above it wait, too, so their times stand still."""
        self.pauses[run.id] = event
        self._queue.release(run.parent_id, run.id)
        if run.id not in self._holds:
            above = [live for live in self._list_above(run) if live is not None]
            self._holds[run.id] = [live.hold_times() for live in above]

    def _unpause(self, run: Run) -> None:
        self.pauses.pop(run.id, None)
        for release in self._holds.pop(run.id, ()):
            release()

    def _list_above(self, run: Run) -> Iterator[LiveRun | None]:
        above: Run | None = run
        while above is not None:
            yield self.live(above.parent_id)
            above = self._runs.find(above.parent_id)

    def _finish(self, run: Run, outcome: Outcome) -> None:
        self._finish_all([(run, outcome)])

    def _finish_all(self, ends: Sequence[tuple[Run, Outcome]]) -> None:
        """Record the ends of runs, then notify waiting callers, the notifier and the parents."""
        now_ms = self._clock.now_ms()
        events = [
            RunFinished(run_id=run.id, outcome=self._add_cause(run, outcome), at_ms=now_ms) for run, outcome in ends
        ]
        for run, _ in ends:
            self._stopping.pop(run.id, None)
            self.questions.withdraw(run)
        self._runs.tell_all(events)
        for run, _ in ends:
            self._ends.ring(run.id)
            if self.notifier is not None:
                self.notifier.finished(run)
            self.wake(self.find_reader(run))

    def _add_cause(self, run: Run, outcome: Outcome) -> Outcome:
        cause = self._causes.pop(run.id, "")
        is_told = cause and outcome.reason is Reason.PARENT
        return msgspec.structs.replace(outcome, error=cause) if is_told else outcome


def _keep_rest(outcome: Outcome, left: Outcome) -> Outcome:
    """Combine the outcome of a cancelled run with what the run has left, such as text and usage."""
    error = left.error or outcome.error
    return msgspec.structs.replace(left, status=outcome.status, reason=outcome.reason, error=error)


class Waiters:
    """Lets tasks wait for a key, such as the id of a run."""

    def __init__(self) -> None:
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, key: str, timeout_s: float | None = None) -> bool:
        """Return True when `ring` is called for the key, False on timeout."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, []).append(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            # A caller that polls with a timeout must not leave a future behind each time.
            waiters = self._waiters.get(key, [])
            if future in waiters:
                waiters.remove(future)
        return True

    def ring(self, key: str) -> None:
        for future in self._waiters.pop(key, ()):
            if not future.done():
                future.set_result(None)

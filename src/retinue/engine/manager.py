"""The Manager: accepts requests, owns the queue and every live run of one main agent, and is the only one that spawns.

It knows no surface's words, no definition's fields and no feature: how a run is outfitted is a port. Every change of
state is published, and so written, before anyone can see it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.core.events import (
    Compacted,
    Event,
    RunFinished,
    RunForgotten,
    RunPlaced,
    RunQueued,
    RunRead,
    RunStarted,
    RunSteered,
    ToolFinished,
    TurnStarted,
    Warned,
)
from retinue.core.fold import fold
from retinue.core.run import Grant, Outcome, Reason, Run, Status
from retinue.engine.backend import Backend
from retinue.engine.journal import RECORD
from retinue.engine.queue import Queue
from retinue.engine.recovery import Remains
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun, contain


class SpawnRefused(RetinueError):
    """Raised when a run cannot be accepted; nothing was recorded."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one main agent's crew may grow to."""

    max_concurrent: int = 4
    """Working runs of one parent."""
    max_depth: int = 4
    max_spawns: int = 200
    """Runs one main prompt may start in all."""


class Outfitter(Protocol):
    """Makes a run out of a request."""

    async def outfit(
        self, run: Run, request: RunRequest, parent: LiveRun, work: Callable[[LiveRun], Awaitable[Outcome]]
    ) -> Outcome:
        """Build the run with everything around it, let `work` do it, undo everything, return the outcome."""
        ...


def interrupt(run: Run, text: str = "") -> Outcome:
    """The outcome of a run whose process died when it had said this."""
    error = "the process that worked on it ended"
    return Outcome(Status.INTERRUPTED, Reason.CRASH, text=text, error=error, usage=run.usage)


class Manager:
    """The crew of one main agent."""

    def __init__(
        self,
        root: LiveRun,
        outfitter: Outfitter,
        backend: Backend,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        bounds: Bounds | None = None,
        judge_dead: Callable[[Run], Outcome] = interrupt,
        goes_on: Callable[[Run, RunRequest], bool] = lambda run, request: False,
    ) -> None:
        """`judge_dead` finds what is left of a run whose process died, unless it `goes_on`, here or elsewhere."""
        self.root = root
        self.bounds = bounds or Bounds()
        self._outfitter = outfitter
        self._backend = backend
        self._clock = clock
        self._new_id = new_id
        self._queue = Queue(self.bounds.max_concurrent)
        self._runs: dict[str, Run] = {}
        self._requests: dict[str, RunRequest] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._live: dict[str, LiveRun] = {}
        self._said: dict[str, list[str]] = {}
        """What was said to runs before they started."""
        self._begun: set[str] = set()
        self._returning: dict[str, list[Run]] = {}
        """Runs of an earlier process that are not at work again yet; what they had started waits for them."""
        self._stopping: dict[str, Reason] = {}
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._spawned = 0
        self._judge_dead = judge_dead
        self._goes_on = goes_on
        self.on_finish: Callable[[Run], None] = lambda run: None
        """Called once per finished run, after it is on record."""
        self.expects_news: Callable[[str], bool] = lambda run_id: False
        """Whether a report is on its way to this run; who answers wakes it when the report is there or dropped."""
        self.find_grant: Callable[[str], Grant | None] = lambda run_id: None
        """What a run may use now: recorded of whoever asks for a run, and of a run that begins."""

    def spawn(self, request: RunRequest, parent_id: str | None = None) -> Run:
        """Accept a run and return at once; it starts when there is room. Raises SpawnRefused.

        For an occasion that has had its run already that one is returned, whatever has become of it.
        """
        if request.occasion and (known := self._find_occasion(request.occasion)) is not None:
            return known
        parent_id = parent_id or self.root.setup.run_id
        parent = self._runs.get(parent_id)
        depth = self.find_depth(parent_id) + 1
        extra_depth = request.extra_depth + (0 if parent is None else parent.extra_depth)
        if depth + extra_depth > self.bounds.max_depth:
            raise SpawnRefused(f"Cannot spawn agent: maximum recursive subagent depth is {self.bounds.max_depth}.")
        # What past the queue is started by the clock, not by the prompt.
        if self._spawned >= self.bounds.max_spawns and not request.skips_queue:
            raise SpawnRefused(
                f"Cannot spawn agent: this prompt has started {self._spawned} runs, the most it may (maxSpawnsPerTree)."
            )
        self._spawned += not request.skips_queue
        run_id = self._new_id()
        if request.session_dir and not request.session_file:
            file = os.path.join(request.session_dir, f"{run_id}.jsonl")
            request = msgspec.structs.replace(request, session_file=file)
        run = Run(
            id=run_id,
            parent_id=parent_id,
            depth=depth,
            agent=request.agent,
            description=request.description,
            surface=request.surface,
            queued_ms=self._clock.now_ms(),
            call_id=request.call_id,
            join=request.join,
            is_background=request.is_background,
            output_file=os.path.join(request.transcript_dir, f"agent-{run_id}.jsonl") if request.transcript_dir else "",
            invocation=request.invocation,
            grant=self.find_grant(parent_id),
            extra_depth=extra_depth,
        )
        self._accept(run, request)
        return run

    def _find_occasion(self, occasion: str) -> Run | None:
        found = (run_id for run_id, request in self._requests.items() if request.occasion == occasion)
        return self._runs.get(next(found, ""))

    def resume(self, run_id: str, task: str, *, session_file: str = "") -> Run:
        """Let a finished run go on with a new task, queued and limited like any other. Raises SpawnRefused.

        With another `session_file` it knows nothing of what it did before.
        """
        run = self._runs.get(run_id)
        if run is None:
            raise SpawnRefused(f'Agent not found: "{run_id}". It may have been cleaned up.')
        if not run.status.is_final:
            raise SpawnRefused(f'Agent "{run_id}" is still {run.status}; steer it, or wait until it is done.')
        before = self._requests[run_id]
        is_unbegun = run.outcome is not None and run.outcome.is_unbegun
        request = msgspec.structs.replace(
            before,
            task=f"{before.task}\n\n{task}" if is_unbegun else task,
            preface=before.preface if is_unbegun else "",
            session_file=session_file or before.session_file,
        )
        # Where it never worked there is nothing to go on from.
        began_ms = 0 if session_file or is_unbegun else run.started_ms
        now_ms = self._clock.now_ms()
        again = msgspec.structs.replace(run, attempt=run.attempt + 1, queued_ms=now_ms, started_ms=began_ms)
        self._accept(again, request)
        return self._runs[run_id]

    def recover(self, remains: Remains) -> list[Run]:
        """Take over what an earlier process left: what worked is interrupted, what waited waits again.

        Returns the finished runs that nobody has been told about yet.
        """
        root_id = self.root.setup.run_id
        remains.adopt(root_id)
        for run_id, run in remains.runs.items():
            self._runs[run_id] = run
            self._requests[run_id] = remains.requests[run_id]
            self._children.setdefault(run.parent_id, {})[run_id] = None
        self.root.journal.take_over(remains.runs.values(), remains.ends, self.root.session.customs(RECORD))
        self._said.update({run_id: said for run_id, said in remains.said.items() if said})
        for run in list(remains.runs.values()):
            if run.status is Status.RUNNING and self._has_parent(run) and self._goes_on(run, self._requests[run.id]):
                self._queue.occupy(run.parent_id, run.id)
                self._bring_back(run)
            elif run.status is Status.RUNNING:
                self._tell(RunFinished(run_id=run.id, outcome=self._judge_dead(run), at_ms=self._clock.now_ms()))
            elif run.status is Status.QUEUED:
                self._queue.add(run.parent_id, run.id)
        for run in remains.runs.values():
            if run.status is Status.QUEUED and not self._has_parent(run):
                self._queue.remove(run.parent_id, run.id)
                outcome = Outcome(Status.INTERRUPTED, Reason.PARENT, error="the run that started it ended")
                self._tell(RunFinished(run_id=run.id, outcome=outcome, at_ms=self._clock.now_ms()))
        for parent_id in list(self._children):
            self._drain(parent_id)
        return remains.find_untold(self.root.session, root_id, self._clock)

    def steer(self, run_id: str, text: str) -> bool:
        """Say something to a run before its next reply, or before it starts; False when it cannot hear it."""
        if not self.hears(run_id):
            return False
        self._tell(RunSteered(run_id=run_id, text=text))
        live = self._live.get(run_id)
        if live is None:
            self._said.setdefault(run_id, []).append(text)
        else:
            live.steer(text)
            self._wake(run_id)
        return True

    def hears(self, run_id: str) -> bool:
        """Whether a run can be told something: not when it is finished, nor when a process of its own is at work."""
        run, live = self._runs.get(run_id), self._live.get(run_id)
        return run is not None and not run.status.is_final and (live is None or live.hears)

    def stop(self, run_id: str, reason: Reason = Reason.USER) -> bool:
        """Stop a queued or working run and all it started; False when it is finished or unknown."""
        run = self._runs.get(run_id)
        if run is None or run.status.is_final:
            return False
        for child in self.children(run_id):
            self.stop(child.id, Reason.PARENT)
        if run.status is Status.QUEUED and self._queue.remove(run.parent_id, run_id):
            self._finish(run, Outcome(Status.STOPPED, reason))
            return True
        self._stopping.setdefault(run_id, reason)
        live = self._live.get(run_id)
        # Work that has a slot but has not begun sees the wish itself: a cancel would keep it from ever running.
        if run_id in self._begun and (live is None or not live.abort(reason)):
            self._backend.cancel(run_id)
        return True

    def stop_all(self, reason: Reason = Reason.USER) -> int:
        """Stop everything; returns how many runs that were."""
        active = [run for run in self._runs.values() if not run.status.is_final]
        # Those that only wait are many at times, and have nothing below them: one record for all of them.
        waiting = [run for run in active if run.status is Status.QUEUED and self._queue.remove(run.parent_id, run.id)]
        self._finish_all([(run, Outcome(Status.STOPPED, reason)) for run in waiting])
        return len(waiting) + sum(self.stop(run.id, reason) for run in reversed(active))

    async def wait(self, run_id: str, timeout_s: float | None = None) -> bool:
        """Return True when the run is finished, False when the time is over or there is no such run."""
        run = self._runs.get(run_id)
        if run is None:
            return False
        if run.status.is_final:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(run_id, []).append(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            # Whoever asks every second must not leave a future behind each time.
            waiters = self._waiters.get(run_id, [])
            if future in waiters:
                waiters.remove(future)
        return True

    def read(self, run_id: str, *, by_call: str = "") -> None:
        """Note that a finished run's result has been read by whoever started it.

        `by_call` reads it: that is on record only when the call's result is, so that a crash between loses nothing.
        """
        run = self._runs.get(run_id)
        if run is None or not run.status.is_final or run.is_read:
            return
        reader = self.live(run.parent_id) if by_call else None
        if reader is None:
            self._tell(RunRead(run_id=run_id))
            return

        def hear(event: Event) -> None:
            if isinstance(event, ToolFinished) and event.result.tool_call_id == by_call:
                stop_listening()
                self.root.bus.publish(RunRead(run_id=run_id))

        fold(run, RunRead(run_id=run_id))  # from now on nobody tells of it
        stop_listening = reader.bus.listen(hear, pieces=False)

    def forget(self, run_id: str) -> bool:
        """Drop a finished run from the list, unless something it started still works."""
        run = self._runs.get(run_id)
        if run is None or not run.status.is_final or self.has_active_below(run_id):
            return False
        self._tell(RunForgotten(run_id=run_id))
        del self._runs[run_id], self._requests[run_id], self._children[run.parent_id][run_id]
        self._said.pop(run_id, None)
        if not self._children.get(run_id):
            self._children.pop(run_id, None)
        return True

    def find(self, run_id: str) -> Run | None:
        """The run with this id."""
        return self._runs.get(run_id)

    def list_runs(self) -> list[Run]:
        """All runs, newest first."""
        newest = reversed(self._runs.values())
        return sorted(newest, key=lambda run: run.started_ms or run.queued_ms, reverse=True)

    def children(self, run_id: str) -> list[Run]:
        """The runs that a run started."""
        return [self._runs[child_id] for child_id in self._children.get(run_id, ())]

    def live(self, run_id: str) -> LiveRun | None:
        """The live side of a working run; the main agent's for its own id."""
        return self.root if run_id == self.root.setup.run_id else self._live.get(run_id)

    def find_depth(self, run_id: str) -> int:
        """0 for the main agent, 1 for what it starts."""
        run = self._runs.get(run_id)
        return 0 if run is None else run.depth

    def has_active_below(self, run_id: str) -> bool:
        """Whether anything this run started, directly or not, is queued or working."""
        return any(not child.status.is_final or self.has_active_below(child.id) for child in self.children(run_id))

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

    def begin_prompt(self) -> None:
        """A new main prompt: spawns are counted from zero."""
        self._spawned = 0

    async def stay(self, run_id: str, live: LiveRun, outcome: Outcome) -> Outcome:
        """Keep a run that has come to its end until all it started has settled, letting it react to their reports."""
        self._welcome(run_id)
        while outcome.status is Status.COMPLETED and (
            live.inbox or self.has_active_below(run_id) or self.expects_news(run_id)
        ):
            if not live.inbox:
                await self._next_news(run_id)
            outcome = await live.wake() or outcome
        for child in self.children(run_id):
            self.stop(child.id, Reason.PARENT)
        return outcome

    def wake(self, run_id: str) -> None:
        """Something was put into a run's inbox: if it is staying for its children, it goes on now."""
        self._wake(run_id)

    def _has_parent(self, run: Run) -> bool:
        """Whether whoever started it is there: the main agent always is."""
        parent = self._runs.get(run.parent_id)
        return run.parent_id == self.root.setup.run_id or (parent is not None and not parent.status.is_final)

    def _accept(self, run: Run, request: RunRequest) -> None:
        self._runs[run.id] = run
        self._requests[run.id] = request
        self._children.setdefault(run.parent_id, {})[run.id] = None
        self._tell(RunQueued(run_id=run.id, run=run, request=msgspec.to_builtins(request)))
        if request.skips_queue or not request.is_background:
            self._queue.occupy(run.parent_id, run.id)
            self._start(run)
        else:
            self._queue.add(run.parent_id, run.id)
            self._drain(run.parent_id)

    def _bring_back(self, run: Run) -> None:
        """Let a run go on, after the one that started it: its directory and its model may be that one's."""
        self._returning[run.id] = []
        if run.parent_id in self._returning:
            self._returning[run.parent_id].append(run)
        else:
            self._start(run)

    def _welcome(self, run_id: str) -> None:
        """A run is at work again: so may be what it had started."""
        if (waiting := self._returning.pop(run_id, None)) is not None:
            for run in waiting:
                self._start(run)
            self._drain(run_id)

    def _give_up(self, run_id: str) -> None:
        """A run did not come back, and so nothing below it does."""
        for run in self._returning.pop(run_id, ()):
            self._give_up(run.id)
            self._queue.release(run_id, run.id)
            self._finish(run, Outcome(Status.INTERRUPTED, Reason.PARENT, error="the run that started it ended"))
        for run in self.children(run_id):
            self.stop(run.id, Reason.PARENT)

    def _drain(self, parent_id: str) -> None:
        if parent_id in self._returning:
            return
        while (run_id := self._queue.take(parent_id)) is not None:
            self._start(self._runs[run_id])

    def _start(self, run: Run) -> None:
        self._backend.start(run.id, self._work(run))

    async def _work(self, run: Run) -> None:
        """One run from its slot to its final state. Never raises."""
        request, outcome = self._requests[run.id], Outcome(Status.FAILED, Reason.CRASH)
        parent = self.live(run.parent_id) or self.root
        self._begun.add(run.id)
        try:
            if run.id in self._stopping:
                raise asyncio.CancelledError
            work = self._outfitter.outfit(run, request, parent, lambda live: self._converse(run, live))
            outcome = await contain(work)
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
            self._queue.release(run.parent_id, run.id)
            self._finish(run, outcome)
            self._drain(run.parent_id)

    async def _converse(self, run: Run, live: LiveRun) -> Outcome:
        self._live[run.id] = live
        request = self._requests[run.id]
        stop_listening = live.bus.listen(lambda event: self._follow(run, event), pieces=False)
        try:
            # Nobody waits any more for a run that has come back: the call that did was cut off.
            is_detached = run.id in self._returning and not run.is_background
            now_ms, grant = self._clock.now_ms(), self.find_grant(run.id)
            self._tell(RunStarted(run_id=run.id, at_ms=now_ms, grant=grant, is_detached=is_detached))
            for text in self._said.pop(run.id, ()):
                live.steer(text)
            task = f"{request.preface}{request.task}"
            return await live.prompt(task, stay=lambda outcome: self.stay(run.id, live, outcome))
        finally:
            stop_listening()

    def _follow(self, run: Run, event: Event) -> None:
        # Its start and end are told by the Manager, with its own times; the rest is what the run itself says.
        if not isinstance(event, RunStarted | RunFinished):
            fold(run, event)
        if isinstance(event, TurnStarted):
            self._welcome(run.id)
        if isinstance(event, Compacted | Warned | RunPlaced):
            self.root.bus.publish(event)

    def _finish(self, run: Run, outcome: Outcome) -> None:
        self._finish_all([(run, outcome)])

    def _finish_all(self, ends: Sequence[tuple[Run, Outcome]]) -> None:
        """Record the ends of runs, and tell whoever waits for them."""
        now_ms = self._clock.now_ms()
        events = [RunFinished(run_id=run.id, outcome=outcome, at_ms=now_ms) for run, outcome in ends]
        for (run, _), event in zip(ends, events, strict=True):
            self._stopping.pop(run.id, None)
            fold(self._runs[run.id], event)
        self.root.bus.publish_all(events)
        for run, _ in ends:
            for future in self._waiters.pop(run.id, ()):
                if not future.done():
                    future.set_result(None)
            self.on_finish(run)
            self._wake(run.parent_id)

    def _tell(self, event: RunQueued | RunStarted | RunFinished | RunRead | RunForgotten | RunSteered) -> None:
        fold(self._runs[event.run_id], event)
        self.root.bus.publish(event)

    async def _next_news(self, run_id: str) -> None:
        future = asyncio.get_running_loop().create_future()
        key = f"news:{run_id}"
        self._waiters.setdefault(key, []).append(future)
        await future

    def _wake(self, run_id: str) -> None:
        for future in self._waiters.pop(f"news:{run_id}", ()):
            if not future.done():
                future.set_result(None)


def _keep_rest(outcome: Outcome, left: Outcome) -> Outcome:
    """The outcome of a run that was cut off, with what it leaves all the same."""
    error = left.error or outcome.error
    return msgspec.structs.replace(left, status=outcome.status, reason=outcome.reason, error=error)

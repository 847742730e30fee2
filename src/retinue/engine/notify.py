"""Tells parents that their runs have finished: by join mode, once each; and wakes an idle main agent.

An outbox with timers through the clock. It knows runs and join modes; the words are a surface's, the inbox is the
parent's. The message that delivers a report is its acknowledgement; a result that was read needs none.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from retinue.core.clock import Clock
from retinue.core.events import Event, RunFinished, RunForgotten
from retinue.core.messages import CustomMessage
from retinue.core.run import Outcome, Run, Status
from retinue.engine.backend import Backend
from retinue.engine.runner import LiveRun, contain

HOLD_S = 0.2
"""A result that is read in the same moment needs no notification."""
BATCH_S = 0.1
"""Runs started within this time of each other belong together."""
GROUP_S = 30.0
"""How long the first of a group waits for the others."""
STRAGGLER_S = 15.0
"""How long the first of those that were late waits for the rest of them."""
CUSTOM_TYPE = "subagent-notification"


def list_told(details: Any) -> Iterator[tuple[str, int]]:
    """The ends of runs that a report tells of, by run and attempt."""
    if not isinstance(details, dict):
        return
    others = details.get("others")
    for item in (details, *(others if isinstance(others, list) else ())):
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            yield item["id"], item.get("attempt", 1)


class NotifierPorts(Protocol):
    """What the notifier needs from its surroundings. MUST NOT raise."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a timer in the background."""
        ...

    def render(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage:
        """The words."""
        ...

    def deliver(self, parent_id: str, message: CustomMessage | None) -> None:
        """Put the message into the parent's inbox and wake it; None: nothing is to be said after all, just wake it."""
        ...


@dataclass(slots=True)
class _Batch:
    """Runs of one parent that were started in one go; open until nothing was added for a moment."""

    ends_s: float
    ids: set[str] = field(default_factory=set)
    early: list[Run] = field(default_factory=list)
    """Finished while it was open."""
    is_closed: bool = False


@dataclass(slots=True)
class _Group:
    """Runs of one parent that are reported together."""

    members: set[str]
    """Those that have not finished."""
    done: list[Run] = field(default_factory=list)
    """Those that have, and are not reported yet."""
    is_late: bool = False
    """Its first report is out; the rest are stragglers."""
    timer: int = 0
    """Counts what happened: an older timer means nothing."""


class _Report(NamedTuple):
    """What is to be said about runs that have ended."""

    runs: list[Run]
    is_group: bool
    is_partial: bool


class Notifier:
    """The outbox of one main agent's crew."""

    def __init__(self, post: NotifierPorts, clock: Clock, siblings: Callable[[Run], list[Run]]) -> None:
        """`siblings`: the runs of the same parent that are queued or working, whoever is asked about left out."""
        self._post = post
        self._clock = clock
        self._siblings = siblings
        self._open: dict[str, _Batch] = {}
        """The newest batch of each parent."""
        self._batches: dict[str, _Batch] = {}
        """By unfinished run."""
        self._groups: dict[str, _Group] = {}
        """By unfinished run."""
        self._owed: dict[tuple[str, int], Run] = {}
        self._held: deque[tuple[float, _Report]] = deque()
        """Reports and when they are sent, which is in the order they came."""
        self._is_closed = False

    def queued(self, run: Run) -> None:
        """A run was accepted: those that are told about together are found by when they were started."""
        if run.join != "smart" or not run.is_background or run.is_guest:
            return
        now_s = self._clock.steady_s()
        batch = self._open.get(run.parent_id)
        if batch is None or batch.is_closed or now_s > batch.ends_s:
            batch = self._open[run.parent_id] = _Batch(now_s)
        batch.ids.add(run.id)
        batch.ends_s = now_s + BATCH_S
        self._batches[run.id] = batch

    def finished(self, run: Run) -> None:
        """A run has ended: tell its parent, alone or with others."""
        group, batch = self._groups.pop(run.id, None), self._batches.pop(run.id, None)
        if self._is_closed or not run.is_background:
            return
        self._owed[run.id, run.attempt] = run
        if group is None and run.join == "group":
            group = self._find_group(run)
        if group is not None:
            self._join(group, run)
        elif batch is not None:
            self._leave_batch(batch, run)
        else:
            self._hold([run], is_group=False, is_partial=False)

    def recovered(self, runs: Iterable[Run]) -> None:
        """Tell at once of runs that an earlier process has not told of: nobody can have read them in this moment."""
        together: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            self._owed[run.id, run.attempt] = run
            together.setdefault((run.parent_id, run.id if run.join == "async" else ""), []).append(run)
        for group in together.values():
            self._send(_Report(group, len(group) > 1, is_partial=False))

    def expects(self, parent_id: str) -> bool:
        """Whether a report to this run is held or waits for others."""
        return any(run.parent_id == parent_id for run in self._owed.values())

    def close(self) -> None:
        """The session ends: nobody is told anything any more."""
        self._is_closed = True
        for store in (self._open, self._batches, self._groups, self._owed):
            store.clear()

    def _find_group(self, run: Run) -> _Group | None:
        """The group of the first to finish: all of the same parent and mode that are still at it. None when alone."""
        others = [other for other in self._siblings(run) if other.join == run.join and other.is_background]
        for other in others:
            if (group := self._groups.get(other.id)) is not None:
                return group
        return self._form({other.id for other in others}) if others else None

    def _leave_batch(self, batch: _Batch, run: Run) -> None:
        batch.early.append(run)
        if self._clock.steady_s() > batch.ends_s:
            self._close_batch(batch)
        elif len(batch.early) == 1:
            self._post.start(self._await_batch(batch))

    async def _await_batch(self, batch: _Batch) -> None:
        while not batch.is_closed and (rest_s := batch.ends_s - self._clock.steady_s()) > 0:
            await self._clock.sleep(rest_s)
        if not batch.is_closed and not self._is_closed:
            self._close_batch(batch)

    def _close_batch(self, batch: _Batch) -> None:
        """Nobody joins any more: two or more are a group, one is reported alone."""
        batch.is_closed = True
        done = {run.id for run in batch.early}
        for run_id in batch.ids:
            self._batches.pop(run_id, None)
        if len(batch.ids) == 1:
            self._hold(batch.early, is_group=False, is_partial=False)
            return
        self._join(self._form(batch.ids - done), *batch.early)

    def _form(self, members: set[str]) -> _Group:
        group = _Group(members)
        for member in members:
            self._groups[member] = group
        return group

    def _join(self, group: _Group, *runs: Run) -> None:
        is_first = not group.done
        group.done.extend(runs)
        group.members.difference_update(run.id for run in runs)
        if not group.members:
            self._flush(group, is_partial=False)
        elif is_first:
            group.timer += 1
            self._post.start(self._expire(group, group.timer, STRAGGLER_S if group.is_late else GROUP_S))

    async def _expire(self, group: _Group, timer: int, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if group.timer == timer and group.done:
            self._flush(group, is_partial=True)

    def _flush(self, group: _Group, *, is_partial: bool) -> None:
        runs, group.done = group.done, []
        group.timer += 1
        group.is_late = True
        self._hold(runs, is_group=True, is_partial=is_partial)

    def _hold(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> None:
        self._held.append((self._clock.steady_s() + HOLD_S, _Report(runs, is_group, is_partial)))
        if len(self._held) == 1:
            self._post.start(self._send_held())

    async def _send_held(self) -> None:
        """Send each report when its time has come: one timer, however many there are."""
        while self._held:
            if (rest_s := self._held[0][0] - self._clock.steady_s()) > 0:
                await self._clock.sleep(rest_s)
            self._send(self._held[0][1])
            await asyncio.sleep(0)  # thousands at once must not hold up everything else
            # Only now: while it stands there, whoever adds a report does not start a second timer.
            self._held.popleft()

    def _send(self, report: _Report) -> None:
        owed = [run for run in report.runs if self._owed.pop((run.id, run.attempt), None) is not None]
        if self._is_closed or not owed:
            return
        unread = [run for run in owed if not run.is_read]
        message = None
        if unread:
            message = self._post.render(unread, is_group=report.is_group, is_partial=report.is_partial)
        self._post.deliver(owed[0].parent_id, message)


class Reactions:
    """Of one main agent."""

    def __init__(self, main: LiveRun, backend: Backend) -> None:
        self._main = main
        self._backend = backend
        self._spared: set[str] = set()
        self._is_open = False
        self._is_due = False
        self._ended: asyncio.Event | None = None
        """Of the reaction that goes on."""
        main.bus.listen(self._hear, pieces=False, kinds=(RunForgotten, RunFinished))

    def spare(self, run_id: str) -> None:
        """Somebody else waits for this run: its report alone is no reason to begin."""
        self._spared.add(run_id)

    def rouse(self, message: CustomMessage) -> None:
        """A report is in the inbox."""
        details = message.details or {}
        ids = [details.get("id"), *(other.get("id") for other in details.get("others", ()))]
        self._is_due |= any(run_id not in self._spared for run_id in ids)
        self._begin()

    async def open(self) -> None:
        """A prompt comes: wait until no reaction goes on; from now on there may be some."""
        while self._ended is not None:
            await self._ended.wait()
        self._is_open, self._is_due = True, False

    def close(self) -> None:
        """Leave the main agent alone until its next prompt."""
        self._is_open = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Leave the main agent alone until its next prompt, unless what is done here goes wrong."""
        was_open, self._is_open = self._is_open, False
        try:
            yield
        except BaseException:
            self._is_open = was_open
            self._begin()
            raise

    def _hear(self, event: Event) -> None:
        if isinstance(event, RunForgotten):
            self._spared.discard(event.run_id)
        # What came too late for the last turn is still there.
        if isinstance(event, RunFinished) and event.run_id == self._main.setup.run_id:
            if event.outcome.status is not Status.COMPLETED:
                self._is_due = False
            self._begin()

    def _begin(self) -> None:
        if self._is_open and self._is_due and self._ended is None and not self._main.is_busy:
            self._ended = asyncio.Event()
            self._backend.start("reaction", self._react(self._ended))

    async def _react(self, ended: asyncio.Event) -> None:
        try:
            while self._is_open and self._is_due and self._main.inbox:
                self._is_due = False
                await contain(self._wake())
        finally:
            self._ended = None
            ended.set()

    async def _wake(self) -> Outcome:
        return await self._main.wake() or self._main.outcome

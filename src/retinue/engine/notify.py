"""Notifies parents of finished runs, once per run and grouped by join mode, and wakes an idle main agent.

It knows runs and join modes; a surface writes the text. The message with a report also acknowledges it; a result that
was already read is not reported.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from retinue.core.clock import Clock
from retinue.core.events import Event, RunAnswered, RunFinished, RunForgotten
from retinue.core.messages import CustomMessage
from retinue.core.run import Outcome, Question, Run, Status
from retinue.engine.backend import Backend
from retinue.engine.runner import LiveRun, contain

HOLD_S = 0.2
"""Reports are delayed this long: a result that is read meanwhile needs none."""
BATCH_S = 0.1
"""Runs started within this time of each other are grouped."""
GROUP_S = 30.0
"""How long the first finished run of a group waits for the others."""
STRAGGLER_S = 15.0
"""How long the first late run of a group waits for the other late ones."""
CUSTOM_TYPE = "subagent-notification"
QUESTION_TYPE = "subagent-question"


def list_told(details: Any) -> Iterator[tuple[str, int]]:
    """Return the runs, as (id, attempt), whose end a report contains."""
    if not isinstance(details, dict):
        return
    others = details.get("others")
    for item in (details, *(others if isinstance(others, list) else ())):
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            yield item["id"], item.get("attempt", 1)


class NotifierPorts(Protocol):
    """What the notifier needs. MUST NOT raise."""

    def start(self, work: Coroutine[Any, Any, None]) -> None: ...

    def render(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage: ...

    def deliver(self, parent_id: str, message: CustomMessage | None) -> None:
        """Put the message into the parent's inbox and wake it. None: only wake it, everything was already read."""
        ...

    def ask(self, run: Run, question: Question, closed: RunAnswered | None) -> None:
        """Tell the parent of a run what it asks, or that the question is closed."""
        ...


class _Batch(Struct):
    """Runs of one parent that were started together; open until none was added for BATCH_S."""

    ends_s: float
    ids: set[str] = field(default_factory=set)
    early: list[Run] = field(default_factory=list)
    """Finished while the batch was open."""
    is_closed: bool = False


class _Group(Struct):
    """Runs of one parent that are reported together."""

    members: set[str]
    """Unfinished runs."""
    done: list[Run] = field(default_factory=list)
    """Finished runs that were not reported yet."""
    is_late: bool = False
    """Whether the first report was sent; the remaining runs are stragglers."""
    timer: int = 0
    """Generation counter: an older timer is ignored."""


class _Report(NamedTuple):
    runs: list[Run]
    is_group: bool
    is_partial: bool


class Notifier:
    """Sends the reports about finished runs of one main agent."""

    def __init__(
        self,
        post: NotifierPorts,
        clock: Clock,
        siblings: Callable[[Run], list[Run]],
        find_reader: Callable[[Run], str] = lambda run: run.parent_id,
    ) -> None:
        """`siblings` returns the other queued or working runs of the same parent, `find_reader` who is notified."""
        self._post = post
        self._find_reader = find_reader
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
        """Reports with their send times, in order."""
        self._is_closed = False

    def queued(self, run: Run) -> None:
        """Register an accepted run: runs started at nearly the same time are reported together."""
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
        """Report the end of a run to its parent, alone or with others."""
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
        """Report runs that an earlier process did not report, without delay: nobody can have read them."""
        together: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            self._owed[run.id, run.attempt] = run
            together.setdefault((run.parent_id, run.id if run.join == "async" else ""), []).append(run)
        for group in together.values():
            self._send(_Report(group, len(group) > 1, is_partial=False))

    def asked(self, run: Run, question: Question, closed: RunAnswered | None) -> None:
        """Tell the parent of a run in the background what it asks, or that the question is closed.

        A parent that waits in a call for its run cannot answer and is not told.
        """
        if not self._is_closed and run.is_background:
            self._post.ask(run, question, closed)

    def expects(self, parent_id: str) -> bool:
        """Return whether a report to this run is delayed or waits for others."""
        return any(self._find_reader(run) == parent_id for run in self._owed.values())

    def close(self) -> None:
        """Stop reporting, because the session ends."""
        self._is_closed = True
        for store in (self._open, self._batches, self._groups, self._owed):
            store.clear()

    def _find_group(self, run: Run) -> _Group | None:
        """Return the group of unfinished runs with the same parent and mode; None if there are none."""
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
        """Close a batch: two or more runs become a group, a single one is reported alone."""
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
        while self._held:
            if (rest_s := self._held[0][0] - self._clock.steady_s()) > 0:
                await self._clock.sleep(rest_s)
            self._send(self._held[0][1])
            await asyncio.sleep(0)  # let other tasks run while there are thousands of reports
            # Removed last: while it is in the queue, `_hold` does not start a second timer.
            self._held.popleft()

    def _send(self, report: _Report) -> None:
        owed = [run for run in report.runs if self._owed.pop((run.id, run.attempt), None) is not None]
        if self._is_closed or not owed:
            return
        unread = [run for run in owed if not run.is_read]
        message = None
        if unread:
            message = self._post.render(unread, is_group=report.is_group, is_partial=report.is_partial)
        self._post.deliver(self._find_reader(owed[0]), message)


class IdleWaker:
    """Wakes an idle main agent when reports arrive."""

    def __init__(self, main: LiveRun, backend: Backend) -> None:
        self._main = main
        self._backend = backend
        self._spared: set[str] = set()
        self._is_open = False
        self._is_due = False
        self._ended: asyncio.Event | None = None
        """Set when the reaction in progress has ended."""
        main.bus.listen(self._hear, pieces=False, kinds=(RunForgotten, RunFinished))

    def spare(self, run_id: str) -> None:
        """Do not wake the main agent for this run alone: another caller waits for it."""
        self._spared.add(run_id)

    def on_report(self, message: CustomMessage) -> None:
        """Wake the main agent: a report is in its inbox."""
        details = message.details or {}
        ids = [details.get("id"), *(other.get("id") for other in details.get("others", ()))]
        self._is_due |= any(run_id not in self._spared for run_id in ids)
        self._begin()

    async def open(self) -> None:
        """Wait until no reaction is in progress, then allow reactions from now on. Called before a prompt."""
        while self._ended is not None:
            await self._ended.wait()
        self._is_open, self._is_due = True, False

    def close(self) -> None:
        """Do not wake the main agent until its next prompt."""
        self._is_open = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do not wake the main agent until its next prompt, unless the block raises."""
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
        # Reports that arrived after the last turn are still in the inbox.
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

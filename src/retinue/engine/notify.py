"""Who is told that a run has finished, when, and together with whom: exactly once per run, also across a crash.

A pure outbox with timers through the clock. It knows runs and join modes; the words are a surface's, the inbox is the
parent's. A notification is written as pending before anything waits for it, and the message that delivers it is its
acknowledgement.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from retinue.core.clock import Clock
from retinue.core.messages import CustomMessage
from retinue.core.run import Run

HOLD_S = 0.2
"""A result that is read in the same moment needs no notification."""
BATCH_S = 0.1
"""Runs started within this time of each other belong together."""
GROUP_S = 30.0
"""How long the first of a group waits for the others."""
STRAGGLER_S = 15.0
CUSTOM_TYPE = "subagent-notification"


class Post(Protocol):
    """What the notifier needs from its surroundings."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a timer in the background."""
        ...

    def render(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage:
        """The words."""
        ...

    def deliver(self, parent_id: str, message: CustomMessage) -> None:
        """Put the message into the parent's inbox and wake it."""
        ...


@dataclass(slots=True)
class _Group:
    """Runs of one parent that are reported together."""

    members: set[str]
    done: list[Run] = field(default_factory=list)
    is_late: bool = False
    """Its first report is out; the rest are stragglers."""
    timer: int = 0
    """Counts what happened: an older timer means nothing."""


class Notifier:
    """The outbox of one main agent's crew."""

    def __init__(self, post: Post, clock: Clock, siblings: Callable[[Run], list[Run]]) -> None:
        """`siblings`: the runs of the same parent that are queued or working, whoever is asked about left out."""
        self._post = post
        self._clock = clock
        self._siblings = siblings
        self._groups: dict[str, _Group] = {}
        self._held: dict[str, Run] = {}

    def finished(self, run: Run) -> None:
        """A run has ended: tell its parent, alone or with others."""
        if not run.is_background or run.is_read:
            return
        group = self._groups.get(run.id) or self._form(run)
        if group is None:
            self._hold([run], is_group=False, is_partial=False)
            return
        group.done.append(run)
        group.members.discard(run.id)
        self._groups.pop(run.id, None)
        if not group.members:
            self._flush(group, is_partial=False)
        elif len(group.done) == 1:
            self._arm(group, STRAGGLER_S if group.is_late else GROUP_S)

    def read(self, run_id: str) -> None:
        """The result was fetched: what is still held about it is dropped."""
        self._held.pop(run_id, None)

    @property
    def has_pending(self) -> bool:
        """Whether something is held or waits for others."""
        return bool(self._held) or any(group.done for group in self._groups.values())

    def _form(self, run: Run) -> _Group | None:
        """The group of a run that finishes first: its siblings of the same join mode, still at work."""
        if run.join == "async":
            return None
        others = [other for other in self._siblings(run) if other.join == run.join]
        if run.join == "smart":
            others = _pick_batch(run, others)
        if not others:
            return None
        group = _Group({run.id, *(other.id for other in others)})
        for member in group.members:
            self._groups[member] = group
        return group

    def _arm(self, group: _Group, seconds: float) -> None:
        group.timer += 1
        self._post.start(self._expire(group, group.timer, seconds))

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
        for run in runs:
            self._held[run.id] = run
        self._post.start(self._send(runs, is_group=is_group, is_partial=is_partial))

    async def _send(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> None:
        await self._clock.sleep(HOLD_S)
        unread = [run for run in runs if self._held.pop(run.id, None) is not None and not run.is_read]
        if unread:
            message = self._post.render(unread, is_group=is_group, is_partial=is_partial)
            self._post.deliver(unread[0].parent_id, message)


def _pick_batch(run: Run, others: list[Run]) -> list[Run]:
    """Those started in one go with the run: each within a moment of the next."""
    batch, reach = list[Run](), {run.id: run.queued_ms}
    left = sorted(others, key=lambda other: abs(other.queued_ms - run.queued_ms))
    for other in left:
        if any(abs(other.queued_ms - at_ms) <= BATCH_S * 1000 for at_ms in reach.values()):
            reach[other.id] = other.queued_ms
            batch.append(other)
    return batch

"""Delivers reports of finished runs to the inbox of their parent and wakes it.

Reports for a parent that is not running are kept until it is resumed.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any, Protocol

from retinue.core.clock import Clock
from retinue.core.events import Event, RunAnswered, RunQueued, RunRead, RunStarted
from retinue.core.messages import CustomMessage
from retinue.core.run import Question, Run
from retinue.engine.backend import Backend
from retinue.engine.manager import Manager
from retinue.engine.notify import CUSTOM_TYPE, QUESTION_TYPE, Notifier, list_told
from retinue.surfaces.fleet.question import render_answer, render_question


class Render(Protocol):
    def __call__(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage: ...


class FleetDelivery:
    """Delivers the reports of one main agent's runs."""

    def __init__(
        self,
        manager: Manager,
        backend: Backend,
        render: Render,
        on_report: Callable[[CustomMessage], None],
        clock: Clock,
    ) -> None:
        self._manager = manager
        self._backend = backend
        self.render = render
        self._on_report = on_report
        self._clock = clock
        self._numbers = count(1)
        self._kept: dict[str, list[CustomMessage]] = {}
        """Reports for parents that are not running, by run id."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a timer task; it ends with the backend."""
        self._backend.start(f"notice-{next(self._numbers)}", work)

    def deliver(self, parent_id: str, message: CustomMessage | None) -> None:
        """Put a report into the parent's inbox for its next reply, and wake an idle parent."""
        live = self._manager.live(parent_id)
        if live is None and message is not None:
            self._kept.setdefault(parent_id, []).append(message)
        elif live is not None:
            if message is not None:
                live.inbox.steer(message)
            self._manager.wake(parent_id)
            if message is not None and live is self._manager.root:
                self._on_report(message)

    def withdraw(self, run: Run) -> None:
        """Remove a result that was read from all waiting reports, and reports that become empty."""
        end = (run.id, run.attempt)

        def revise(message: CustomMessage) -> CustomMessage | None:
            told = list(list_told(message.details)) if message.custom_type == CUSTOM_TYPE else []
            if end not in told:
                return message
            found = [(self._manager.find(run_id), attempt) for run_id, attempt in told]
            unread = [other for other, attempt in found if other and other.attempt == attempt and not other.is_read]
            is_partial = bool(list_siblings(self._manager, run))
            return self.render(unread, is_group=len(told) > 1, is_partial=is_partial) if unread else None

        self._revise(run.parent_id, revise)
        self._manager.wake(run.parent_id)

    def ask(self, run: Run, question: Question, closed: RunAnswered | None) -> None:
        """Deliver a question. When it is closed, remove it, or tell a parent that knows it that the user answered."""
        now_ms, reader = self._clock.now_ms(), self._manager.find_reader(run)
        if closed is None:
            self.deliver(reader, render_question(run, question, now_ms))
            return
        unseen = list[CustomMessage]()

        def revise(message: CustomMessage) -> CustomMessage | None:
            is_same = message.custom_type == QUESTION_TYPE and message.details.get("questionId") == question.id
            unseen.extend([message] if is_same else ())
            return None if is_same else message

        self._revise(reader, revise)
        live = self._manager.live(reader)
        if closed.by == "user" and not unseen and live is not None:
            live.inbox.steer(render_answer(run, closed, now_ms))  # wakes nobody: there is nothing to do

    def _revise(self, parent_id: str, revise: Callable[[CustomMessage], CustomMessage | None]) -> None:
        """Change the reports that a parent has not seen."""
        live = self._manager.live(parent_id)
        if live is not None:
            live.inbox.revise_reports(revise)
        kept = [revised for message in self._kept.pop(parent_id, ()) if (revised := revise(message)) is not None]
        if kept:
            self._kept[parent_id] = kept

    def deliver_kept(self, run_id: str) -> None:
        """Deliver reports that arrived while the run was not running."""
        for message in self._kept.pop(run_id, ()):
            self.deliver(run_id, message)


def list_siblings(manager: Manager, run: Run) -> list[Run]:
    """Return the other queued or working runs of the same parent."""
    active = (other for other in manager.children(run.parent_id) if not other.status.is_final)
    return [other for other in active if other.id != run.id]


def open_notifier(
    manager: Manager,
    backend: Backend,
    render: Render,
    clock: Clock,
    on_report: Callable[[CustomMessage], None] = lambda message: None,
) -> Notifier:
    """Create the notifier of a main agent; the caller closes it when the session ends.

    `on_report` is called with each report to the main agent, which may be idle.
    """
    post = FleetDelivery(manager, backend, render, on_report, clock)
    notifier = Notifier(post, clock, partial(list_siblings, manager), manager.find_reader)

    def hear(event: Event) -> None:
        if isinstance(event, RunQueued):
            notifier.queued(event.run)
        elif isinstance(event, RunStarted):
            post.deliver_kept(event.run_id)
        elif isinstance(event, RunRead) and (run := manager.find(event.run_id)) is not None:
            post.withdraw(run)

    manager.root.bus.listen(hear, pieces=False, kinds=(RunQueued, RunRead, RunStarted))
    return notifier

"""Lets a main agent at rest react to reports of runs it has started, as if it had been told by its user.

Nobody is charged for what nobody asked for: it reacts only between a prompt and the next abort, and not to runs that
somebody else waits for. What it does not react to waits in its inbox for the next prompt.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from retinue.core.events import Event, RunFinished, RunForgotten
from retinue.core.messages import CustomMessage
from retinue.core.run import Outcome, Status
from retinue.engine.backend import Backend
from retinue.engine.runner import LiveRun, contain


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

"""Events from a worker to the front end: batches of events, including those of the run's children.

Partial replies and complete results of children are left out; they are in the session, which is delivered at the end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, structs

from retinue.core.events import (
    Compacted,
    Event,
    MessageDelta,
    MessageFinished,
    RunContinued,
    RunFinished,
    RunForgotten,
    RunPaused,
    RunPlaced,
    RunProgressed,
    RunQueued,
    RunRead,
    RunStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    Warned,
)
from retinue.core.messages import ToolResultMessage
from retinue.core.run import Outcome, Run
from retinue.durable.cluster.approval import shorten_content
from retinue.durable.cluster.record import Claim

MAX_RESULT = 4_000
"""Maximum characters of a tool result that are sent."""
_LIFE = (RunPlaced, RunPaused, RunContinued, RunRead, RunForgotten, Compacted, Warned)
_STEPS = (TurnStarted, ToolStarted, ToolFinished, MessageFinished, RunProgressed)


class RunView(Protocol):
    """The runs that a main agent has started."""

    def find(self, run_id: str) -> Run | None: ...

    def steer(self, run_id: str, text: str) -> bool: ...

    def stop(self, run_id: str) -> bool: ...

    def overhear(
        self, run_id: str, listener: Callable[[Event], None], *, pieces: bool = True, kinds: tuple[type[Any], ...] = ()
    ) -> bool: ...


class ChildEvents:
    """Forwards events of the children of one run."""

    def __init__(
        self,
        own: tuple[str, str],
        look: Callable[[], RunView],
        tell: Callable[[Event], None],
        to_sender_outcome: Callable[[Outcome], Outcome],
    ) -> None:
        """`own`: the run's id here and at its front end; `to_sender_outcome` translates paths in an outcome.

        `look` returns the current runs, which may not exist before the first one.
        """
        self._here, self._there = own
        self._look = look
        self._tell = tell
        self._bring_home = to_sender_outcome
        self._followed: set[str] = set()

    def hear(self, event: Event) -> None:
        if isinstance(event, RunQueued):
            parent = self._there if event.run.parent_id == self._here else event.run.parent_id
            # A copy, because the run changes before it is sent.
            run = structs.replace(event.run, parent_id=parent, outcome=None, output_file="")
            self._tell(structs.replace(event, run=run))
        elif isinstance(event, RunStarted):
            self._tell(event)
            self._attach(event.run_id)
        elif isinstance(event, RunFinished):
            self._followed.discard(event.run_id)
            self._tell(structs.replace(event, outcome=self._bring_home(event.outcome)))
        elif isinstance(event, _LIFE):
            self._tell(event)
            self._attach(event.run_id)

    def _attach(self, run_id: str) -> None:
        session_runs = self._look()
        run = session_runs.find(run_id)
        if run_id in self._followed or run is None or run.status.is_final:
            return
        if session_runs.overhear(run_id, self._follow, pieces=False, kinds=_STEPS):
            self._followed.add(run_id)

    def _follow(self, event: Event) -> None:
        run = self._look().find(event.run_id)
        if run is None:
            return
        if isinstance(event, MessageFinished):
            self._tell(_shorten(event))
        self._tell(
            RunProgressed(
                run_id=run.id,
                turns=run.turns,
                tool_uses=run.tool_uses,
                compactions=run.compactions,
                usage=run.usage,
                context_tokens=run.context_tokens,
                activity=run.activity,
            )
        )


def _shorten(event: MessageFinished) -> MessageFinished:
    message = event.message
    if not isinstance(message, ToolResultMessage):
        return event
    content = shorten_content(message.content, MAX_RESULT)
    return structs.replace(event, message=structs.replace(message, content=content, details=UNSET))


DELAY_S = 0.15
_encoder = msgspec.json.Encoder()


class EventBatches:
    """Collects the events of one run and sends them in batches."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._events: list[Event] = []
        self._has_news = asyncio.Event()
        self._ended = asyncio.Event()

    def hear(self, event: Event) -> None:
        """Add an event of the run or its children; start and end of the run itself are reported elsewhere."""
        if isinstance(event, RunStarted | RunFinished) and event.run_id == self._claim.assignment.run_id:
            return
        if isinstance(event, RunProgressed):
            self._drop_progress(event.run_id)
        last = self._events[-1] if self._events else None
        if isinstance(event, ToolProgress) and isinstance(last, ToolProgress) and last.call_id == event.call_id:
            self._events[-1] = event  # each contains the complete output so far
        elif (merged := _merge(last, event)) is not None:
            self._events[-1] = merged
        else:
            self._events.append(event)
        self._has_news.set()

    def _drop_progress(self, run_id: str) -> None:
        """Remove the previous progress event of a run, if only such events came after it."""
        for place in range(len(self._events) - 1, -1, -1):
            event = self._events[place]
            if not isinstance(event, RunProgressed):
                return
            if event.run_id == run_id:
                del self._events[place]
                return

    async def run(self) -> None:
        while not self._ended.is_set():
            await self._has_news.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(DELAY_S):
                    await self._ended.wait()
            if not self._ended.is_set():
                await self.flush()

    def end(self) -> None:
        """Let `run` return after its current batch, which exists nowhere else."""
        self._ended.set()
        self._has_news.set()

    async def flush(self, outcome: Outcome | None = None) -> None:
        """Send the collected events; an outcome ends the run."""
        self._has_news.clear()
        events, self._events = self._events, []
        if events or outcome is not None:
            await self._claim.tell([_encoder.encode(event) for event in events], outcome)


def _merge(last: Event | None, event: Event) -> Event | None:
    if not isinstance(event, MessageDelta) or not isinstance(last, MessageDelta) or last.run_id != event.run_id:
        return None
    one, two = last.delta, event.delta
    is_text = one.type == two.type and one.type.endswith("_delta") and one.content_index == two.content_index
    if not is_text or not isinstance(one.delta, str) or not isinstance(two.delta, str):
        return None
    return msgspec.structs.replace(event, delta=msgspec.structs.replace(two, delta=one.delta + two.delta))

"""What a run on a worker tells its face: events in batches, with a bounded delay, and never one row for each piece."""

import asyncio
from contextlib import suppress

import msgspec

from retinue.core.events import Event, MessageDelta, RunFinished, RunProgressed, RunStarted, ToolProgress
from retinue.core.run import Outcome
from retinue.durable.cluster.record import Claim

DELAY_S = 0.15
_encoder = msgspec.json.Encoder()


class Teller:
    """Collects the events of one run."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._events: list[Event] = []
        self._has_news = asyncio.Event()
        self._ended = asyncio.Event()

    def hear(self, event: Event) -> None:
        """Take an event of the run, whose start and end are told by others, or of one below it."""
        if isinstance(event, RunStarted | RunFinished) and event.run_id == self._claim.assignment.run_id:
            return
        if isinstance(event, RunProgressed):
            self._drop_progress(event.run_id)
        last = self._events[-1] if self._events else None
        if isinstance(event, ToolProgress) and isinstance(last, ToolProgress) and last.call_id == event.call_id:
            self._events[-1] = event  # each says all there is so far
        elif (merged := _merge(last, event)) is not None:
            self._events[-1] = merged
        else:
            self._events.append(event)
        self._has_news.set()

    def _drop_progress(self, run_id: str) -> None:
        """Forget how far a run was a moment ago, when nothing but such news has come since."""
        for place in range(len(self._events) - 1, -1, -1):
            event = self._events[place]
            if not isinstance(event, RunProgressed):
                return
            if event.run_id == run_id:
                del self._events[place]
                return

    async def run(self) -> None:
        """Tell until the end."""
        while not self._ended.is_set():
            await self._has_news.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(DELAY_S):
                    await self._ended.wait()
            if not self._ended.is_set():
                await self.flush()

    def end(self) -> None:
        """Let `run` return; what it is telling is told first, since nobody else knows of it any more."""
        self._ended.set()
        self._has_news.set()

    async def flush(self, outcome: Outcome | None = None) -> None:
        """Tell what there is; an outcome ends the run."""
        self._has_news.clear()
        events, self._events = self._events, []
        if events or outcome is not None:
            await self._claim.tell([_encoder.encode(event) for event in events], outcome)


def _merge(last: Event | None, event: Event) -> Event | None:
    """Two pieces of the same text as one."""
    if not isinstance(event, MessageDelta) or not isinstance(last, MessageDelta) or last.run_id != event.run_id:
        return None
    one, two = last.delta, event.delta
    is_text = one.type == two.type and one.type.endswith("_delta") and one.content_index == two.content_index
    if not is_text or not isinstance(one.delta, str) or not isinstance(two.delta, str):
        return None
    return msgspec.structs.replace(event, delta=msgspec.structs.replace(two, delta=one.delta + two.delta))

"""What a run on a worker tells its face: events in batches, with a bounded delay, and never one row for each piece."""

import asyncio
from contextlib import suppress

import msgspec

from retinue.core.events import Event, MessageDelta, RunFinished, RunStarted, ToolProgress
from retinue.core.run import Outcome
from retinue.durable.record import Claim

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
        """Take an event of the run itself; its start and its end are told by others."""
        if isinstance(event, RunStarted | RunFinished):
            return
        last = self._events[-1] if self._events else None
        if isinstance(event, ToolProgress) and isinstance(last, ToolProgress) and last.call_id == event.call_id:
            self._events[-1] = event  # each says all there is so far
        elif (merged := _merge(last, event)) is not None:
            self._events[-1] = merged
        else:
            self._events.append(event)
        self._has_news.set()

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

"""The event bus of one run tree: write the durable fact, then show it.

Knows nothing of what events mean. Listeners are called at once and must not block; subscriptions have a bounded queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from retinue.core.events import Event, MessageDelta, MessageStarted, ToolProgress

Listener = Callable[[Event], None]
Kinds = tuple[type[Any], ...]
"""Of events; empty for all."""
log = logging.getLogger(__name__)

_LIVE = (MessageDelta, MessageStarted, ToolProgress)


class Bus:
    """Publishes events to whoever listens, after they are on record."""

    def __init__(
        self,
        record: Callable[[Event], None] | None = None,
        record_all: Callable[[Sequence[Event]], None] | None = None,
    ) -> None:
        """`record_all` does what `record` does, for many events at once."""
        self._record = record
        self._record_all = record_all
        self._listeners: tuple[tuple[Listener, Kinds], ...] = ()
        # Replaced, never changed: whoever stops listening because of an event must not hide it from the next one.
        self._interested: dict[type[Any], tuple[Listener, ...]] = {}
        self._streaming = 0

    def publish(self, event: Event) -> None:
        """Record and show. MUST NOT raise: recording reports its own failures, a broken listener is logged."""
        if self._record is not None:
            self._record(event)
        self._show(event)

    def publish_all(self, events: Sequence[Event]) -> None:
        """The same for facts that come together: all are on record before the first is shown."""
        if self._record_all is not None:
            self._record_all(events)
        for event in events:
            self._show(event)

    def _show(self, event: Event) -> None:
        kind = type(event)
        listeners = self._interested.get(kind)
        if listeners is None:
            listeners = tuple(each for each, kinds in self._listeners if not kinds or kind in kinds)
            self._interested[kind] = listeners
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", kind.__name__)

    def listen(self, listener: Listener, *, pieces: bool = True, kinds: Kinds = ()) -> Callable[[], None]:
        """Call the listener with each event; returns what ends it. `pieces`: it wants replies as they arrive.

        `kinds`: only with these. Many listen to every run, and each wants few of its events.
        """
        entry = (listener, kinds)
        self._change((*self._listeners, entry))
        self._streaming += pieces

        def stop() -> None:
            # By identity: the same listener may have been given twice, and this may be called twice.
            left = tuple(each for each in self._listeners if each is not entry)
            if len(left) < len(self._listeners):
                self._change(left)
                self._streaming -= pieces

        return stop

    def _change(self, listeners: "tuple[tuple[Listener, Kinds], ...]") -> None:
        self._listeners, self._interested = listeners, {}

    def subscribe(self, *, bound: int = 10_000, pieces: bool = True) -> "Subscription":
        """A queue of the events from now on."""
        subscription = Subscription(bound)
        subscription.stop = self.listen(subscription.put, pieces=pieces)
        return subscription

    @property
    def is_watched(self) -> bool:
        """Whether anyone wants replies piece by piece."""
        return self._streaming > 0


class Subscription:
    """Events in order, for one reader. When it falls behind, live pieces are dropped first; facts never are."""

    def __init__(self, bound: int) -> None:
        self._events: deque[Event | None] = deque()
        self._bound = bound
        self._ready = asyncio.Event()
        self.dropped = 0
        self.stop: Callable[[], None] = lambda: None

    def put(self, event: Event) -> None:
        """Queue an event."""
        if len(self._events) >= self._bound and isinstance(event, _LIVE):
            self.dropped += 1
            return
        self._events.append(event)
        self._ready.set()

    def close(self) -> None:
        """End the stream after what is queued."""
        self.stop()
        self._events.append(None)
        self._ready.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                event = self._events.popleft()
                if event is None:
                    return
                yield event
            self._ready.clear()
            await self._ready.wait()

"""The event bus of one run: records an event, then passes it to listeners.

MUST NOT know what events mean. Listeners are called synchronously and must not block; subscriptions have a queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from retinue.core.events import Event, MessageDelta, MessageStarted, ToolProgress

Listener = Callable[[Event], None]
Kinds = tuple[type[Any], ...]
"""Event classes; empty means all."""
log = logging.getLogger(__name__)

_LIVE = (MessageDelta, MessageStarted, ToolProgress)


class Bus:
    """Publishes events to listeners after they are recorded."""

    def __init__(
        self,
        record: Callable[[Event], None] | None = None,
        record_all: Callable[[Sequence[Event]], None] | None = None,
    ) -> None:
        self._record = record
        self._record_all = record_all
        self._listeners: tuple[tuple[Listener, Kinds], ...] = ()
        # Replaced, never changed: a listener that removes itself must not hide the event from the next listener.
        self._interested: dict[type[Any], tuple[Listener, ...]] = {}
        self._streaming = 0

    def publish(self, event: Event) -> None:
        """Record an event and pass it on. MUST NOT raise: recording reports failures, listener errors are logged."""
        if self._record is not None:
            self._record(event)
        self._show(event)

    def publish_all(self, events: Sequence[Event]) -> None:
        """Publish many events; all are recorded before the first is passed on."""
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
        """Call the listener with each event and return a function that stops it. `pieces`: it wants partial replies.

        `kinds` limits the event classes: every run has many listeners, and each wants few of its events.
        """
        entry = (listener, kinds)
        self._change((*self._listeners, entry))
        self._streaming += pieces

        def stop() -> None:
            # By identity: the same listener may be registered twice, and `stop` may be called twice.
            left = tuple(each for each in self._listeners if each is not entry)
            if len(left) < len(self._listeners):
                self._change(left)
                self._streaming -= pieces

        return stop

    def _change(self, listeners: "tuple[tuple[Listener, Kinds], ...]") -> None:
        self._listeners, self._interested = listeners, {}

    @property
    def is_watched(self) -> bool:
        """Whether any listener wants partial replies."""
        return self._streaming > 0


class Subscription:
    """Events in order, for one reader. If it is too slow, partial replies and progress are dropped, nothing else."""

    def __init__(self, bound: int = 10_000) -> None:
        self._events: deque[Event | None] = deque()
        self._bound = bound
        self._ready = asyncio.Event()
        self.dropped = 0
        self.stop: Callable[[], None] = lambda: None

    def put(self, event: Event) -> None:
        if len(self._events) >= self._bound and isinstance(event, _LIVE):
            self.dropped += 1
            return
        self._events.append(event)
        self._ready.set()

    def close(self) -> None:
        """End the iteration after the queued events."""
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

"""Tells handlers of extensions about the events they want to know of. Listens to the bus of one run."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Self

from retinue.core.events import Event, MessageDelta, MessageStarted, ToolProgress
from retinue.features.extensions.audience import Audience
from retinue.features.extensions.contained import Handler

_PIECES = (MessageDelta, MessageStarted, ToolProgress)


class Handlers:
    """A listener for a bus. Without an audience that others share, use it as an async context manager."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        audience: Audience | None = None,
        *,
        leaving_out: Collection[type] = (),
        limit_s: float = 60.0,
        farewell_s: float = 2.0,
    ) -> None:
        """`leaving_out` are events that these handlers hear elsewhere."""
        self._audience = audience or Audience(limit_s=limit_s, farewell_s=farewell_s)
        self._group = asyncio.TaskGroup()
        self._by_kind: dict[type, list[Handler]] = {}
        for handler in handlers:
            for kind in handler.events:
                if kind not in leaving_out:
                    self._by_kind.setdefault(kind, []).append(handler)

    @property
    def wants_pieces(self) -> bool:
        """Whether any of them listens to replies as they arrive; that costs every reply something."""
        return any(kind in self._by_kind for kind in _PIECES)

    @property
    def failures(self) -> Counter[str]:
        """By extension."""
        return self._audience.failures

    @property
    def dropped(self) -> Counter[str]:
        """Events left out for handlers that were too slow, by extension."""
        return self._audience.dropped

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def __call__(self, event: Event) -> None:
        """Tell everybody who wants to know. Does not raise and does not wait."""
        for handler in self._by_kind.get(type(event), ()):
            self._audience.tell(handler, event)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._audience.open(self._group)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            await self._audience.close(is_patient=kind is None)
        finally:
            # The group is not told of an error, which it would wrap: its tasks know nothing of it.
            await self._group.__aexit__(None, None, None)

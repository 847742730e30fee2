"""Lets the first of several runs ask alone whose requests begin alike, until its reply begins.

Then the provider has that beginning in its prompt cache, and the others read it from there. MUST NOT know runs.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from retinue.core.clock import Clock
from retinue.core.messages import AssistantMessage
from retinue.core.model import Draft, ModelInfo, ModelRequest

_LASTS_S = 300.0
"""For this time providers keep what nobody has asked for again."""


class WarmUp:
    """What the runs of one main agent have asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._warm_until_s: dict[Hashable, float] = {}
        self._asking: dict[Hashable, asyncio.Event] = {}
        """Beginnings for which the first request has no reply yet."""

    @asynccontextmanager
    async def join(self, info: ModelInfo, request: ModelRequest, draft: Draft) -> AsyncIterator[None]:
        """Wait until a request may be sent, which happens in the context; only the first one of a run waits."""
        head = _name_head(info, request)
        while head is not None and self._warm_until_s.get(head, 0.0) < self._clock.steady_s():
            if (first := self._asking.get(head)) is None:
                break
            await first.wait()
        else:
            yield
            return
        first = self._asking[head] = asyncio.Event()

        def begin() -> None:
            self._warm_until_s[head] = self._clock.steady_s() + _LASTS_S
            first.set()

        draft.on_begin = begin
        try:
            yield
            if draft.has_content:
                begin()
        finally:
            draft.on_begin = None
            del self._asking[head]
            first.set()  # if it failed, one of the others is the first


def _name_head(info: ModelInfo, request: ModelRequest) -> Hashable | None:
    """Name what a request has in common with those of other runs; None if it is not the first one of its run."""
    own = request.messages[request.shared :]
    if not request.cache or any(isinstance(message, AssistantMessage) for message in own):
        return None
    tools = tuple(spec.name for spec in request.tools)
    return info.ref, hash(request.system), tools, request.shared, request.session_id

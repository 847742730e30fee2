"""A model of each wire format, talking to a scripted server on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from retinue.core.messages import UserMessage
from retinue.core.model import Delta, Draft, Model, ModelInfo, ModelRequest, Price, Reply, ToolSpec
from retinue.models.adapter import build_model
from retinue.models.governor import Governor
from retinue.models.transport import Timing, Transport
from retinue.testing.clock import FakeClock
from retinue.testing.server import APIS, MockServer

__all__ = ["APIS", "KEY", "Seat", "open_seat", "to_info"]

KEY = "sk-test-0123456789"
FAST = Timing(idle_s=2)
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def to_info(api: str, base_url: str, **fields: Any) -> ModelInfo:
    """A model that can do everything."""
    fields = {"reasoning": True, "input": ("text", "image"), "cost": Price(1, 2, 0.5, 1.5), **fields}
    return ModelInfo(provider="mock", id="mock-1", api=api, base_url=base_url, **fields)


class Seat:
    """Who asks the model."""

    def __init__(self, model: Model, server: MockServer, governor: Governor) -> None:
        self.model = model
        self.server = server
        self.governor = governor
        self.deltas: list[Delta] = []

    async def ask(self, *messages: Any, watch: bool = True, stream: bool = True, **fields: Any) -> Reply:
        """Ask for one reply; without `stream` the server sends it in one piece although it is asked for a stream."""
        self.server.streams = stream
        said = messages or (UserMessage("hello", 1),)
        watcher = self.deltas.append if watch else None
        draft = Draft(self.model.info, started_ms=5, watcher=watcher)
        return await self.model.reply(ModelRequest("be brief", list(said), [READ], **fields), draft)


@asynccontextmanager
async def open_seat(
    api: str, replies: list[Any], *, timing: Timing = FAST, key: str = KEY, **fields: Any
) -> AsyncIterator[Seat]:
    """A model of the given format before a server that plays the replies."""
    transport = Transport()
    async with MockServer(replies) as server:
        governor = Governor(FakeClock(auto=True))
        info = to_info(api, fields.pop("base_url", server.base_url(api)), **fields)
        model = build_model(info, transport=transport, key=key, governor=governor, timing=timing)
        try:
            yield Seat(model, server, governor)
        finally:
            await transport.close()

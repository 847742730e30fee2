"""Connect to an MCP server over streamable HTTP, with limits on response sizes.

Does not sign in: a server that requires OAuth is refused and its sign-in instructions are ignored. Imports the MCP
library, so it must be imported only when a server is used.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client

from retinue.features.mcp.program import MAX_MESSAGE
from retinue.features.mcp.server import ServerTrouble
from retinue.features.mcp.stdio import MessageGuard

CONNECT_S = 10.0
SILENCE_S = 300.0
"""An event stream may be quiet for long; calls have their own time limit."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], trouble: ServerTrouble, on_asked: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams of a server at a URL. `on_asked` receives the method of each request from the server."""

    async def check(response: httpx2.Response) -> None:
        if response.status_code in (401, 403):
            how = "it wants a sign-in, which retinue does not do; give it a header such as Authorization"
            trouble.note(f"{how} (HTTP {response.status_code})")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # A few compressed bytes may expand to gigabytes, and no compression was requested.
            trouble.note("the answer is compressed, which was not asked for")
            raise httpx2.RemoteProtocolError(trouble.reason, request=response.request)
        is_news = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_news:
            response.stream = _Bounded(response.stream, response.request, trouble)

    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S),
            event_hooks={"response": [check]},
            trust_env=urlsplit(url).hostname not in _LOOPBACK,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
        _open_watch(*streams, MessageGuard(on_asked), trouble) as watched,
    ):
        yield watched


@asynccontextmanager
async def _open_watch(
    theirs: Any, ours: Any, guard: MessageGuard, trouble: ServerTrouble
) -> AsyncIterator[tuple[Any, Any]]:
    """Check every message on the streams; the first forbidden one closes them."""
    to_us, read_stream = anyio.create_memory_object_stream[Any](0)
    write_stream, from_us = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        async with to_us:
            async for item in theirs:
                if fault := guard.find_fault(getattr(item, "message", None)):
                    trouble.note(fault)
                    return
                await to_us.send(item)

    async def write() -> None:
        async with ours:
            async for item in from_us:
                guard.note_sent(item.message)
                await ours.send(item)

    async def run(pump: Callable[[], Awaitable[None]]) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await pump()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(run, read)
            group.start_soon(run, write)
            try:
                yield read_stream, write_stream
            finally:
                group.cancel_scope.cancel()
    finally:
        for stream in (to_us, read_stream, write_stream, from_us):
            stream.close()


class _Bounded(httpx2.AsyncByteStream):
    """A response body that may not be larger than a message."""

    def __init__(self, stream: Any, request: httpx2.Request, trouble: ServerTrouble) -> None:
        self._stream = stream
        self._request = request
        self._trouble = trouble

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_MESSAGE:
                self._trouble.note(f"the answer has more than {MAX_MESSAGE >> 20} MiB")
                raise httpx2.ReadError(self._trouble.reason, request=self._request)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

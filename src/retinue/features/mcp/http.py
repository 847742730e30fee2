"""The wire to a server that listens at an address (streamable HTTP): the library's, with bounds on what comes back.

Signs in nowhere: a server that wants OAuth is told no, so nothing it says about signing in is followed. Imports the
library, so nothing imports this file before a server is used.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from retinue.features.mcp.program import MAX_MESSAGE
from retinue.features.mcp.trouble import Trouble

CONNECT_S = 10.0
SILENCE_S = 300.0
"""A stream of news may be quiet for long; a call has a limit of its own."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@asynccontextmanager
async def open_http(url: str, headers: Mapping[str, str], trouble: Trouble) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a server at an address."""

    async def check(response: httpx2.Response) -> None:
        if response.status_code in (401, 403):
            how = "it wants a sign-in, which retinue does not do; give it a header such as Authorization"
            trouble.note(f"{how} (HTTP {response.status_code})")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # A few packed bytes may be gigabytes; nothing packed was asked for.
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
    ):
        yield streams


class _Bounded(httpx2.AsyncByteStream):
    """A body that may not be larger than a message."""

    def __init__(self, stream: Any, request: httpx2.Request, trouble: Trouble) -> None:
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

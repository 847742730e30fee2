"""The streams to an MCP server: a process over stdio, or streamable HTTP. Each message is checked before the library
sees it.

A message that breaks the protocol, or a flood of messages, ends the connection. Does not sign in: `login` does.
Imports the MCP library, so it must be imported only when a server is used.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from inspect import signature
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from retinue.core.errors import RetinueError
from retinue.features.mcp.server import ServerTrouble
from retinue.tools.server_program import ServerProgram, Start

MAX_MESSAGE = 10 * 1024 * 1024
"""Bytes of one message: enough for an image."""
MAX_UNREAD = 8 * MAX_MESSAGE
"""Bytes of a server's output that may wait for us."""
MAX_NOTICES = 2_000
"""Maximum number of notifications in one window."""
WINDOW_S = 10.0
CONNECT_S = 10.0
SILENCE_S = 300.0
"""An event stream may be quiet for long; calls have their own time limit."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Versions of the library before 2.3 have no limit for events; later ones have one that is smaller than ours.
_EVENT_LIMIT: dict[str, Any] = (
    {"max_sse_event_size": 2 * MAX_MESSAGE}
    if "max_sse_event_size" in signature(streamable_http_client).parameters
    else {}
)
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class MessageGuard:
    def __init__(self, on_asked: Callable[[str], None]) -> None:
        """`on_asked` receives the method of each request from the server."""
        self._on_asked = on_asked
        self._sent: set[str | int] = set()
        self._window_s = 0.0
        self._notices = 0

    def note_sent(self, message: Any) -> None:
        if isinstance(message, JSONRPCRequest):
            self._sent.add(message.id)

    def find_fault(self, message: Any) -> str:
        """Return why a message must end the connection; empty if it is fine."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            # A late answer to a cancelled request is fine; an answer to a request we never sent is not.
            is_strange = message.id is not None and message.id not in self._sent
            return "it answered a request that was never sent" if is_strange else ""
        if isinstance(message, JSONRPCRequest):
            self._on_asked(message.method)
        return self._count() if isinstance(message, JSONRPCRequest | JSONRPCNotification) else ""

    def _count(self) -> str:
        now_s = anyio.current_time()
        if now_s - self._window_s > WINDOW_S:
            self._window_s, self._notices = now_s, 0
        self._notices += 1
        is_flood = self._notices > MAX_NOTICES
        return f"it sent more than {MAX_NOTICES} notifications within {WINDOW_S:g} s" if is_flood else ""


class _ServerProcess:
    """The process of a server, read line by line."""

    def __init__(self, start: Start, trouble: ServerTrouble, group: asyncio.TaskGroup) -> None:
        self._grace_s = start.grace_s
        self._trouble = trouble
        self._program = ServerProgram(start, self._take)
        self._output = asyncio.StreamReader(limit=MAX_MESSAGE)
        self._unread = 0
        self._is_leaving = False
        self.write = self._program.write
        self.running = group.create_task(self._run())

    async def read_line(self) -> bytes:
        """Return the next line that is not blank; nothing at the end, whose reason is noted."""
        line = b""
        while not line.strip() and not self._trouble.ended.is_set():
            try:
                line = await self._output.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                how = await self._describe_end()
                # If we are closing the connection, its end is not a failure of the server.
                if not self._is_leaving:
                    self._trouble.note(f"its last message was cut off, and {how}" if error.partial.strip() else how)
                return b""
            except asyncio.LimitOverrunError:
                self._trouble.note(f"it sent a message of more than {MAX_MESSAGE >> 20} MiB")
                return b""
            self._unread -= len(line)
        return line

    async def stop(self) -> None:
        """End the server and its children: close its input, then SIGTERM, then SIGKILL; every wait is bounded."""
        self._is_leaving = True
        self._program.hang_up()
        await asyncio.wait([self.running], timeout=self._grace_s)
        self.running.cancel()
        await asyncio.wait([self.running])

    def _take(self, data: bytes) -> bool:
        self._unread += len(data)
        if self._unread > MAX_UNREAD:
            self._trouble.note(f"more than {MAX_UNREAD >> 20} MiB of its output wait to be read")
            return True
        if data:
            self._output.feed_data(data)
        else:
            self._output.feed_eof()
        return False

    async def _run(self) -> str:
        try:
            return await self._program.run()
        except RetinueError as error:
            return str(error)
        finally:
            self._output.feed_eof()

    async def _describe_end(self) -> str:
        await asyncio.wait([self.running], timeout=0.2)
        is_known = self.running.done() and not self.running.cancelled()
        return self.running.result() if is_known else self._program.explain("it closed its output")


@asynccontextmanager
async def open_stdio(
    start: Start, trouble: ServerTrouble, on_asked: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server and open its streams; it ends on exit. `on_asked` receives the method of each of its requests."""
    guard = MessageGuard(on_asked)

    async def read(to_us: Any) -> None:
        while line := await process.read_line():
            message = _parse(line, guard)
            if isinstance(message, str):
                trouble.note(message)
                return
            await to_us.send(SessionMessage(message))

    async def write(from_us: Any) -> None:
        async with from_us:
            async for item in from_us:
                guard.note_sent(item.message)
                process.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async with asyncio.TaskGroup() as group:
        process = _ServerProcess(start, trouble, group)
        try:
            async with _open_streams(read, write) as streams:
                try:
                    yield streams
                finally:
                    # The process must end even if we are cancelled.
                    with anyio.CancelScope(shield=True):
                        await process.stop()
        finally:
            process.running.cancel()


@asynccontextmanager
async def _open_streams(
    read: Callable[[Any], Awaitable[None]], write: Callable[[Any], Awaitable[None]]
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the library's streams: `read` fills the first, until it returns, and `write` empties the other."""
    to_us, read_stream = anyio.create_memory_object_stream[Any](0)
    write_stream, from_us = anyio.create_memory_object_stream[Any](0)

    async def fill() -> None:
        async with to_us:
            with suppress(*_GONE):
                await read(to_us)

    async def empty() -> None:
        with suppress(*_GONE):
            await write(from_us)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(fill)
            group.start_soon(empty)
            try:
                yield read_stream, write_stream
            finally:
                group.cancel_scope.cancel()
    finally:
        for stream in (to_us, read_stream, write_stream, from_us):
            stream.close()


def _parse(line: bytes, guard: MessageGuard) -> Any:
    """Parse a line; returns the message, or a text that says why the connection must end."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return "it sent a line that is not a message of the protocol"
    return guard.find_fault(message) or message


@asynccontextmanager
async def open_http(
    url: str,
    headers: Mapping[str, str],
    trouble: ServerTrouble,
    on_asked: Callable[[str], None],
    auth: httpx2.Auth | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams of a server at a URL. `on_asked` receives the method of each request from the server.

    `auth` notes itself why the server refuses access.
    """

    async def check(response: httpx2.Response) -> None:
        if auth is None and response.status_code in (401, 403):
            trouble.note(
                f"it refuses access (HTTP {response.status_code}); check the Authorization header of its entry"
            )
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # A few compressed bytes may expand to gigabytes, and no compression was requested.
            trouble.note("the answer is compressed, although no compression was requested")
            raise httpx2.RemoteProtocolError(trouble.reason, request=response.request)
        is_news = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        response.stream = _Bounded(response.stream, response.request, trouble, is_news=is_news)

    guard = MessageGuard(on_asked)
    async with (
        httpx2.AsyncClient(
            auth=auth,
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S),
            event_hooks={"response": [check]},
            trust_env=urlsplit(url).hostname not in _LOOPBACK,
        ) as client,
        streamable_http_client(url, http_client=client, **_EVENT_LIMIT) as (theirs, ours),
    ):

        async def read(to_us: Any) -> None:
            async for item in theirs:
                if fault := guard.find_fault(getattr(item, "message", None)):
                    trouble.note(fault)
                    return
                await to_us.send(item)

        async def write(from_us: Any) -> None:
            async with ours:
                async for item in from_us:
                    guard.note_sent(item.message)
                    await ours.send(item)

        async with _open_streams(read, write) as streams:
            yield streams


class _Bounded(httpx2.AsyncByteStream):
    """A response body that may not be larger than a message, or a stream of events none of which may be."""

    def __init__(self, stream: Any, request: httpx2.Request, trouble: ServerTrouble, *, is_news: bool) -> None:
        self._stream = stream
        self._request = request
        self._trouble = trouble
        self._is_news = is_news

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last = 0, b""
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_MESSAGE:
                self._trouble.note(f"the answer has more than {MAX_MESSAGE >> 20} MiB")
                raise httpx2.ReadError(self._trouble.reason, request=self._request)
            if self._is_news:
                # A blank line ends an event; its parts may arrive separately.
                last = last[-3:] + piece
                end = max(last.rfind(b"\n\n"), last.rfind(b"\r\n\r\n"), last.rfind(b"\r\r"))
                size = size if end < 0 else len(last) - end
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

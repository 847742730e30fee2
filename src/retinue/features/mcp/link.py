"""The connection to an MCP server, shared by runs: connects when needed, reconnects with back-off, gives up after that.

A call that was in progress when the connection ended is never repeated. Must not know the MCP library: the function
that opens a session is passed in.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from retinue.core.clock import Clock
from retinue.core.errors import quote
from retinue.features.mcp.server import McpFailed, McpServer, ServerTrouble
from retinue.features.mcp.tool_list import ListedTool, read_listing

if TYPE_CHECKING:  # imports the MCP library
    from retinue.features.mcp.session import McpSession

RECONNECTS = 3
BACK_OFF_S = 1.0
LONGEST_S = 10.0
REST_S = 60.0
"""A server that was given up may be tried again after this time."""
LIST_S = 10.0

Progress = Callable[[float, float | None, str | None], Any]


OpenSession = Callable[[McpServer, ServerTrouble], AbstractAsyncContextManager["McpSession"]]


class _Line:
    """One connection attempt and, if it succeeds, the connection."""

    def __init__(self) -> None:
        self.trouble = ServerTrouble()
        self.ready: asyncio.Future[McpSession] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class ServerLink:
    """A server, its connection and its known tools."""

    def __init__(
        self,
        server: McpServer,
        open_session: OpenSession,
        clock: Clock,
        group: asyncio.TaskGroup,
        *,
        is_confined: bool = False,
    ) -> None:
        self.server = server
        self.is_confined = is_confined
        """Its process runs in the sandbox of read-only runs."""
        self._open = open_session
        self._clock = clock
        self._group = group
        self._gate = asyncio.Semaphore(server.concurrency)
        self._line: _Line | None = None
        self._failures = 0
        self._failed_s = 0.0
        self._reason = ""
        self._known: dict[str, str] | None = None
        """Fingerprints of the tools when first listed, by name."""
        self._changed: set[str] = set()
        self._leases: set[object] = set()

    @property
    def is_connected(self) -> bool:
        line = self._line
        return line is not None and line.ready.done() and not line.over.is_set()

    def hold(self, lease: object) -> None:
        self._leases.add(lease)

    def let_go(self, lease: object) -> None:
        """Remove a lease; the connection closes with the last one."""
        self._leases.discard(lease)
        if not self._leases:
            self.disconnect()

    def disconnect(self) -> None:
        """Ask the connection to close, without waiting."""
        if self._line is not None:
            self._line.stop.set()

    def abort(self) -> None:
        """Cancel the connection immediately."""
        if self._line is not None and self._line.task is not None:
            self._line.task.cancel()

    async def wait_closed(self) -> None:
        if self._line is not None:
            await self._line.over.wait()

    async def list_tools(self) -> tuple[list[ListedTool], list[str]]:
        """Return the current tools and problems with them. Raises McpFailed; does not retry."""
        session = await self._reach(patient=False)
        async with asyncio.timeout(LIST_S):
            return await self._list(session)

    async def _list(self, session: "McpSession") -> tuple[list[ListedTool], list[str]]:
        found, problems = read_listing(await session.list_tools())
        tools = [tool for tool in found if not self.server.is_hidden(tool.name)]
        if self._known is None:
            self._known = {tool.name: tool.fingerprint for tool in tools}
        # The user approved the first list, so a changed or new tool is blocked until a new session.
        for tool in tools:
            known = self._known.setdefault(tool.name, "")
            if known != tool.fingerprint and tool.name not in self._changed:
                self._changed.add(tool.name)
                what = "has changed" if known else "is new"
                problems.append(f"its tool {quote(tool.name)} {what}: it cannot be used before the next session")
        return [tool for tool in tools if tool.name not in self._changed], problems

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: Progress) -> dict[str, Any]:
        """Call a tool once. Raises McpFailed."""
        limit_s = self.server.timeout_s
        async with self._gate:
            try:
                async with asyncio.timeout(limit_s) as deadline:

                    async def hear(progress: float, total: float | None, message: str | None) -> None:
                        deadline.reschedule(asyncio.get_running_loop().time() + limit_s)
                        on_progress(progress, total, message)

                    session = await self._reach(patient=True)
                    if session.is_stale:
                        await self._list(session)
                    if tool in self._changed:
                        raise McpFailed("the server has changed this tool since the session began, so it is not called")
                    result = await session.call(tool, arguments, hear)
            except TimeoutError:
                raise McpFailed(f"no answer within {limit_s:g} s; its effect is unknown") from None
        self._failures = 0
        return result

    async def _reach(self, *, patient: bool) -> "McpSession":
        """Return an open session; a patient caller waits through all attempts. Raises McpFailed."""
        while True:
            line = self._line
            if line is None or line.stop.is_set() or line.over.is_set():
                if line is not None and not line.over.is_set():
                    await line.over.wait()
                    continue
                await self._pause(patient=patient)
                if self._line is line:
                    self._line = line = _Line()
                    line.task = self._group.create_task(self._serve(line))
                else:
                    continue
            try:
                session = await asyncio.shield(line.ready)
            except McpFailed:
                if not patient:
                    raise
                continue
            if not session.is_over:
                return session
            await line.over.wait()

    async def _pause(self, *, patient: bool) -> None:
        """Wait for the back-off time. Raises McpFailed if the server was given up."""
        if not self._failures:
            return
        waited_s = self._clock.steady_s() - self._failed_s
        if self._failures > RECONNECTS:
            if waited_s < REST_S:
                raise McpFailed(f"gave up after {RECONNECTS} attempts to reconnect: {self._reason}")
            self._failures = RECONNECTS
        if not self.server.auto_reconnect:
            raise McpFailed(f"not connected, and autoReconnect is off: {self._reason}")
        rest_s = min(LONGEST_S, BACK_OFF_S * 2 ** (self._failures - 1)) - waited_s
        if rest_s > 0:
            if not patient:
                raise McpFailed(self._reason)
            await self._clock.sleep(rest_s)

    async def _serve(self, line: _Line) -> None:
        """Connect and stay connected until stopped or the server ends. Must not raise: servers share the task group."""
        try:
            async with self._open(self.server, line.trouble) as session:
                session.is_stale = self._known is not None
                line.ready.set_result(session)
                await _wait_either(line.stop, line.trouble.ended)
            if not line.stop.is_set():
                self._note_failure(line.trouble.reason)
        except McpFailed as failure:
            if not line.stop.is_set():
                self._note_failure(str(failure))
            _fail(line, failure)
        finally:
            _fail(line, McpFailed("the connection is closed"))
            line.over.set()

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        self._failed_s = self._clock.steady_s()
        self._reason = reason


def _fail(line: _Line, failure: McpFailed) -> None:
    if not line.ready.done():
        line.ready.set_exception(failure)
        line.ready.exception()  # marks the exception as retrieved, because nobody may be waiting


async def _wait_either(first: asyncio.Event, second: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in (first, second)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

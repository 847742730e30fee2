"""The agent side of the Agent Client Protocol: one process, several sessions, each with its own main agent.

The connection, its messages and their validation are the protocol's library; this file says what each request does.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    Usage,
)
from msgspec.structs import replace

from retinue.app import Request, Retinue, SessionWish, TodoTool, list_sessions
from retinue.core.errors import RetinueError, SessionError, SessionNotFound, UsageError, quote
from retinue.core.run import Reason, Status
from retinue.serve.acp.client_access import ClientAccess
from retinue.serve.acp.prompt import to_blocks, to_servers
from retinue.serve.acp.session import AcpSession
from retinue.serve.acp.transport import LineTransport
from retinue.serve.outlet import Outlet
from retinue.serve.rpc.lines import Lines

PAGE = 100
_STOPS = {
    Reason.LENGTH: "max_tokens",
    Reason.OUTPUT_LIMIT: "max_tokens",
    Reason.TURN_LIMIT: "max_turn_requests",
    Reason.TURN_LIMIT_WRAPPED: "max_turn_requests",
    Reason.USER: "cancelled",
    Reason.PARENT: "cancelled",
}


class AcpAgent:
    """Answers the requests of one client; the method names are the library's."""

    def __init__(
        self, request: Request, lines: Lines, outlet: Outlet, say: Callable[[str], None], version: str
    ) -> None:
        self._request = request
        self._say = say
        self._version = version
        self._transport = LineTransport(lines, outlet)
        self._connection = Connection(self._handle, self._transport, listening=False)
        self._route = build_agent_router(self, use_unstable_protocol=True)  # type: ignore[arg-type]
        self._client = ClientCapabilities()
        self._sessions: dict[str, AcpSession] = {}
        self._group = asyncio.TaskGroup()
        self._opening = asyncio.Lock()
        self._is_over = False

    async def serve(self) -> None:
        """Serve until the input ends; then stop and close all sessions."""
        async with self._group:
            try:
                await self._connection.main_loop()
            finally:
                self._is_over = True
                for session in self._sessions.values():
                    session.crew.abort()
                    session.closed.set()
        await self._connection.close()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(work)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        # Written at once, so that notifications keep the order of events.
        self._transport.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self._connection.send_request(method, params)

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        try:
            return await self._route(method, params, is_notification)
        except RetinueError as error:
            code = (
                -32002 if isinstance(error, SessionNotFound) else -32603 if isinstance(error, SessionError) else -32602
            )
            raise RequestError(code, str(error)) from error

    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: Any
    ) -> InitializeResponse:
        self._client = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(), resume=SessionResumeCapabilities(), close=SessionCloseCapabilities()
                ),
            ),
            agent_info=Implementation(name="retinue", title="retinue", version=self._version),
            auth_methods=[],
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> NewSessionResponse:
        wish = self._request.session
        session = await self._open(
            cwd, replace(wish, kind="none" if wish.kind == "none" else "new", reference=""), mcp_servers
        )
        return NewSessionResponse(session_id=session.id, modes=session.modes, config_options=list(session.options))

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> LoadSessionResponse:
        session = await self._find_or_open(cwd, session_id, mcp_servers)
        session.updates.replay(session.crew.history.list_messages())
        return LoadSessionResponse(modes=session.modes, config_options=list(session.options))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> ResumeSessionResponse:
        session = await self._find_or_open(cwd, session_id, mcp_servers)
        return ResumeSessionResponse(modes=session.modes, config_options=list(session.options))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        if cursor and not (cursor.isdecimal() and len(cursor) < 10):
            raise UsageError(f"unknown cursor {quote(cursor)}")
        begin = int(cursor or 0)
        folder = _check_folder(cwd) if cwd else "."
        rows = await asyncio.to_thread(list_sessions, self._request, everything=not cwd, folder=folder, children=False)
        shown = [
            SessionInfo(
                session_id=row["id"],
                cwd=row["cwd"],
                title=(row["name"] or row["firstMessage"] or None),
                updated_at=row["modified"],
            )
            for row in rows[begin : begin + PAGE]
        ]
        following = str(begin + PAGE) if len(rows) > begin + PAGE else None
        return ListSessionsResponse(sessions=shown, next_cursor=following)

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._find(session_id)
        session.crew.abort()
        session.closed.set()
        await session.ended.wait()
        return CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self._find(session_id).choose_mode(mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: Any, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._find(session_id)
        session.choose_option(config_id, value)
        return SetSessionConfigOptionResponse(config_options=list(session.options))

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        session = self._find(session_id)
        blocks = to_blocks(prompt)
        if session.is_working:
            raise UsageError("this session is working on another prompt; cancel it or wait for its end")
        session.is_working = True
        try:
            outcome = await session.prompt(blocks)
        finally:
            session.is_working = False
        if outcome is None:
            return PromptResponse(stop_reason="end_turn")
        stop = _STOPS.get(outcome.reason)
        if outcome.status is not Status.COMPLETED and stop is None:
            raise RequestError(-32603, outcome.error or f"stopped: {outcome.reason.replace('_', ' ')}")
        used = outcome.usage
        return PromptResponse(
            stop_reason=stop or "end_turn",  # type: ignore[arg-type]
            usage=Usage(
                total_tokens=used.total_tokens,
                input_tokens=used.input,
                output_tokens=used.output,
                cached_read_tokens=used.cache_read,
                cached_write_tokens=used.cache_write,
            ),
        )

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            session.crew.abort()

    def _find(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(f"session {quote(session_id)} is not open; open it with session/load or session/new")
        return session

    async def _find_or_open(self, cwd: str, session_id: str, mcp_servers: Any) -> AcpSession:
        async with self._opening:
            if (session := self._sessions.get(session_id)) is not None:
                return session
            missing = (
                f"there is no session {quote(session_id)} in {quote(cwd, 300)}; session/list shows the folder of each"
            )
            # A path or the beginning of an id would open a session that the client does not know by this name.
            if "/" in session_id or session_id.endswith(".jsonl"):
                raise SessionNotFound(missing)
            wish = replace(self._request.session, kind="named", reference=session_id)
            try:
                return await self._open(cwd, wish, mcp_servers)
            except SessionNotFound as error:
                raise SessionNotFound(missing) from error

    async def _open(self, cwd: str, wish: SessionWish, mcp_servers: Any) -> AcpSession:
        ready: asyncio.Future[AcpSession] = asyncio.get_running_loop().create_future()
        request = replace(self._request, session=wish, mcp_servers=to_servers(mcp_servers or []))
        self.start(self._hold(_check_folder(cwd), request, ready))
        return await ready

    async def _hold(self, cwd: str, request: Request, ready: "asyncio.Future[AcpSession]") -> None:
        """Open a session, keep it until it is closed, and close it in the same task."""
        access = ClientAccess(self.request, self._client)
        try:
            # The list of what is to be done is the plan that the client shows.
            tools, wrap = [TodoTool()], access.wrap
            async with Retinue(cwd, request=request, say=self._say, tools=tools, wrap_tool=wrap) as crew:
                session = AcpSession(crew, self, cwd)
                if request.session.kind == "named" and session.id != request.session.reference:
                    raise SessionNotFound(f"there is no session {quote(request.session.reference)}")
                access.session = session
                with crew.questions.attend():
                    crew.listen(session.hear)
                    self._sessions[session.id] = session
                    ready.set_result(session)
                    if self._is_over:
                        session.closed.set()
                    # After the answer that names the session.
                    await asyncio.sleep(0)
                    session.offer_commands()
                    await session.closed.wait()
        except RetinueError as error:
            if ready.done():
                self._say(str(error))
            else:
                ready.set_exception(error)
        finally:
            if ready.done() and not ready.cancelled() and ready.exception() is None:
                self._sessions.pop(ready.result().id, None)
                ready.result().ended.set()


def _check_folder(cwd: str) -> str:
    if not os.path.isabs(cwd) or "\0" in cwd:
        raise UsageError(f"cwd {quote(cwd)} is not an absolute path")
    if not os.path.isdir(cwd):
        raise UsageError(f"cwd {quote(cwd, 300)} is not a folder")
    return cwd

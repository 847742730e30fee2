"""The agent side of the Agent Client Protocol: one process, several sessions, each with its own main agent.

The connection, its messages and their validation are the protocol's library; this file says what each request does.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

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
    SessionConfigOptionSelect,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    Usage,
)

from retinue.app import Request, Retinue, SessionWish, list_sessions
from retinue.core.errors import RetinueError, SessionError, UsageError, quote
from retinue.core.events import Answered, Asked, Event, MessageFinished, RunStarted, ToolStarted
from retinue.core.jsonline import encode_json
from retinue.core.messages import THINKING_LEVELS, ImageContent, TextContent, UserContent
from retinue.core.run import Outcome, Question, Reason, Status
from retinue.serve.acp.client_access import ClientAccess
from retinue.serve.acp.updates import Updates, to_content, to_diff
from retinue.serve.outlet import Outlet
from retinue.serve.rpc.lines import Lines

MODES = {
    "ask": ("Ask", "Ask before changes and commands", "ask"),
    "plan": ("Plan", "Read only; changes are refused", "plan"),
    "auto": ("Auto", "Work without questions, inside the sandbox", "never"),
}
"""Mode of the protocol → name, description, our approval mode."""
PAGE = 100
_STOPS = {
    Reason.LENGTH: "max_tokens",
    Reason.OUTPUT_LIMIT: "max_tokens",
    Reason.TURN_LIMIT: "max_turn_requests",
    Reason.TURN_LIMIT_WRAPPED: "max_turn_requests",
    Reason.USER: "cancelled",
    Reason.PARENT: "cancelled",
}


class LineTransport:
    """The library's transport over our lines: garbage gets an error answer and the connection goes on."""

    def __init__(self, lines: Lines, outlet: Outlet) -> None:
        self._lines = aiter(lines)
        self._outlet = outlet

    async def receive(self) -> dict[str, Any] | None:
        async for line in self._lines:
            if line is not None and not line.strip():
                continue
            try:
                message = json.loads(line) if line is not None else None
            except (ValueError, RecursionError):
                self._refuse(-32700, "the line is not JSON")
                continue
            problem = _find_problem(message)
            if not problem:
                return message
            self._refuse(-32600, problem, message.get("id") if isinstance(message, dict) else None)
        return None

    async def send(self, message: dict[str, Any]) -> None:
        self.write(message)

    def write(self, message: dict[str, Any]) -> None:
        self._outlet.write(encode_json(message) + b"\n")

    async def close(self) -> None: ...

    def _refuse(self, code: int, text: str, request_id: Any = None) -> None:
        known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
        self.write({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": text}})


def _find_problem(message: Any) -> str:
    """Why a message cannot be handled; empty if it can."""
    if not isinstance(message, dict):
        return "expected one JSON object per line"
    if "method" in message:
        is_sound = isinstance(message["method"], str) and isinstance(message.get("params", {}), dict | list | None)
        return "" if is_sound else "method must be text, params an object"
    if not ("id" in message and ("result" in message or "error" in message)):
        return "the message has no method"
    return (
        "" if isinstance(message["id"], int | str) and isinstance(message.get("error") or {}, dict) else "bad response"
    )


class AcpSession:
    """One open session of the client."""

    def __init__(self, crew: Retinue, agent: "AcpAgent", cwd: str) -> None:
        self.crew = crew
        self.id = crew.chronicle.id
        self.cwd = cwd
        self.closed = asyncio.Event()
        """Set to close the session."""
        self.ended = asyncio.Event()
        """Set when it is closed."""
        self.is_working = False
        self.first_mode = crew.approvals
        self.updates = Updates(self._send, crew.run_id, cwd)
        self._agent = agent
        self._asked: dict[str, asyncio.Task[None]] = {}

    def hear(self, event: Event) -> None:
        if isinstance(event, Asked):
            self._asked[event.question.id] = self._agent.start(self._ask(event.question))
        elif isinstance(event, Answered):
            if (task := self._asked.pop(event.question_id, None)) is not None and event.by == "nobody":
                task.cancel()
        else:
            self.updates(event)
        if isinstance(event, RunStarted) and event.run_id != self.crew.run_id:
            self.crew.lookout.overhear(event.run_id, self.updates, pieces=False, kinds=(ToolStarted, MessageFinished))

    def _send(self, update: Mapping[str, Any]) -> None:
        self._agent.notify("session/update", {"sessionId": self.id, "update": update})

    def offer_commands(self) -> None:
        """Tell the client the slash commands."""
        offers = [
            {"name": each.name, "description": each.description or each.name, "input": {"hint": "arguments"}}
            for each in self.crew.catalogue.list()
        ]
        self._send({"sessionUpdate": "available_commands_update", "availableCommands": offers})

    async def _ask(self, question: Question) -> None:
        """Let the client's user decide; anything but a valid answer counts as the safe default."""
        answer = question.default
        try:
            if question.options:
                reply = await self._agent.request("session/request_permission", self._describe(question))
                outcome = reply.get("outcome") if isinstance(reply, dict) else None
                chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
                answer = chosen if isinstance(chosen, str) and chosen in question.options else question.default
        except (RequestError, ConnectionError):
            pass
        self.crew.questions.answer(question.id, answer)

    def _describe(self, question: Question) -> dict[str, Any]:
        from retinue.views.call_changes import read_texts

        call_id = self.updates.take_call(question.run_id, question.tool) or f"question-{question.id}"
        title = f"{question.agent}: {question.title}" if question.agent else question.title
        texts = read_texts(question)
        content = [to_diff(*texts)] if texts else to_content([TextContent(question.text or question.title)])
        options = [
            {"optionId": option, "name": option, "kind": _to_option_kind(number, option, question)}
            for number, option in enumerate(question.options)
        ]
        kind = {"kind": "edit"} if texts else {}
        call = {"toolCallId": call_id, "title": title, "content": content, "status": "pending", **kind}
        return {"sessionId": self.id, "toolCall": call, "options": options}

    @property
    def modes(self) -> SessionModeState:
        present = {mode: name for name, (_, _, mode) in MODES.items()}.get(self.crew.approvals, "auto")
        offered = [SessionMode(id=key, name=name, description=text) for key, (name, text, _) in MODES.items()]
        return SessionModeState(current_mode_id=present, available_modes=offered)

    def choose_mode(self, mode: str) -> None:
        if mode not in MODES:
            raise UsageError(f"unknown mode {quote(mode)}; choose one of: {', '.join(MODES)}")
        # A user whose settings say `bypass` gets that back with `auto`.
        is_bypass = mode == "auto" and self.first_mode == "bypass"
        self.crew.approvals = "bypass" if is_bypass else MODES[mode][2]
        self._send({"sessionUpdate": "current_mode_update", "currentModeId": mode})

    @property
    def options(self) -> list[SessionConfigOptionSelect]:
        selection = self.crew.selection
        models = {info.ref: info.name or info.id for info in selection.list_models()}
        models.setdefault(selection.model.ref, selection.model.name or selection.model.id)
        return [
            _to_option("model", "Model", "model", selection.model.ref, models),
            _to_option("thinking", "Thinking", "thought_level", selection.thinking, {n: n for n in selection.levels}),
        ]

    def choose_option(self, key: str, value: Any) -> None:
        """Change the model or the thinking level. Raises RetinueError."""
        if not isinstance(value, str):
            raise UsageError(f"{key} needs a text")
        if key == "model":
            provider, _, model = value.partition("/")
            self.crew.selection.select(provider, model)
        elif key == "thinking":
            level = next((level for level in THINKING_LEVELS if level == value), None)
            if level is None:
                raise UsageError(f"unknown thinking level {quote(value)}; choose one of: {', '.join(THINKING_LEVELS)}")
            self.crew.selection.think(level)
        else:
            raise UsageError(f"unknown option {quote(key)}; choose one of: model, thinking")

    async def prompt(self, blocks: list[UserContent]) -> Outcome | None:
        """Run the main agent and what it starts; None for a slash command, which does not involve it."""
        first = blocks[0] if blocks else None
        if isinstance(first, TextContent) and first.text.startswith("/"):
            name, _, words = first.text[1:].partition(" ")
            if self.crew.commands.has(name):
                shown = await self.crew.commands.run(name, words.strip())
                if shown:
                    self._send({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": shown}})
                return None
            blocks = [TextContent(self.crew.catalogue.expand(first.text)), *blocks[1:]]
        return await self.crew.prompt(blocks, settle=True)


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

    async def serve(self) -> None:
        """Serve until the input ends; then stop and close all sessions."""
        async with self._group:
            try:
                await self._connection.main_loop()
            finally:
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
        except SessionError as error:
            raise RequestError(-32002, str(error)) from error
        except RetinueError as error:
            raise RequestError(-32602, str(error)) from error

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
        session.updates.replay(session.crew.chronicle.list_messages())
        return LoadSessionResponse(modes=session.modes, config_options=list(session.options))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> ResumeSessionResponse:
        session = await self._find_or_open(cwd, session_id, mcp_servers)
        return ResumeSessionResponse(modes=session.modes, config_options=list(session.options))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        if cursor and not cursor.isdecimal():
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
            raise SessionError(f"session {quote(session_id)} is not open; open it with session/load or session/new")
        return session

    async def _find_or_open(self, cwd: str, session_id: str, mcp_servers: Any) -> AcpSession:
        if (session := self._sessions.get(session_id)) is not None:
            return session
        if not session_id.strip():
            raise UsageError("sessionId is empty")
        return await self._open(cwd, replace(self._request.session, kind="named", reference=session_id), mcp_servers)

    async def _open(self, cwd: str, wish: SessionWish, mcp_servers: Any) -> AcpSession:
        ready: asyncio.Future[AcpSession] = asyncio.get_running_loop().create_future()
        request = replace(self._request, session=wish, mcp_servers=to_servers(mcp_servers or []))
        self.start(self._hold(_check_folder(cwd), request, ready))
        return await ready

    async def _hold(self, cwd: str, request: Request, ready: "asyncio.Future[AcpSession]") -> None:
        """Open a session, keep it until it is closed, and close it in the same task."""
        access = ClientAccess(self.request, self.notify, self._client)
        try:
            async with Retinue(cwd, request=request, say=self._say, wrap_tool=access.wrap) as crew:
                session = AcpSession(crew, self, cwd)
                access.session_id = session.id
                with crew.questions.attend():
                    crew.listen(session.hear)
                    self._sessions[session.id] = session
                    ready.set_result(session)
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


def to_servers(servers: list[Any]) -> dict[str, Any]:
    """The editor's MCP servers in the form of `mcp.json`. Raises UsageError for a kind that is not offered."""
    found: dict[str, Any] = {}
    for server in servers:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", server.name)[:40] or "server"
        match getattr(server, "type", "stdio"):
            case "stdio":
                env = {each.name: each.value for each in server.env}
                found[name] = {"command": server.command, "args": server.args, "env": env}
            case "http":
                headers = {each.name: each.value for each in server.headers}
                found[name] = {"type": "http", "url": server.url, "headers": headers}
            case kind:
                raise UsageError(f"MCP server {quote(server.name)}: {kind} is not offered; use stdio or http")
    return found


def _to_option(key: str, name: str, category: Any, value: str, choices: Mapping[str, str]) -> SessionConfigOptionSelect:
    options = [{"value": value, "name": shown} for value, shown in choices.items()]
    fields = {"id": key, "name": name, "category": category, "currentValue": value, "options": options}
    return SessionConfigOptionSelect.model_validate({**fields, "type": "select"})


def _to_option_kind(number: int, option: str, question: Question) -> str:
    if option in (question.default, "deny"):
        return "reject_once"
    return "allow_once" if number == 0 else "allow_always"


def to_blocks(prompt: list[Any]) -> list[UserContent]:
    """The content of a prompt for the model. Raises UsageError for what cannot be shown to it."""
    blocks: list[UserContent] = []
    for part in prompt:
        match part.type:
            case "text":
                blocks.append(TextContent(part.text))
            case "image":
                blocks.append(ImageContent(part.data, part.mime_type))
            case "resource_link":
                blocks.append(TextContent(f"[{part.name}]({_to_path(part.uri)})"))
            case "resource":
                blocks.append(_to_resource(part.resource))
            case kind:
                raise UsageError(f"a prompt cannot contain {kind}; send text, images or resources")
    if not any(isinstance(block, ImageContent) or block.text.strip() for block in blocks):
        raise UsageError("the prompt is empty")
    return blocks


def _to_resource(resource: Any) -> UserContent:
    text = getattr(resource, "text", None)
    if text is not None:
        return TextContent(f'<file path="{_to_path(resource.uri)}">\n{text}\n</file>')
    if (resource.mime_type or "").startswith("image/"):
        return ImageContent(resource.blob, resource.mime_type)
    return TextContent(f"[{_to_path(resource.uri)} is a binary file and is not shown]")


def _to_path(uri: str) -> str:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri

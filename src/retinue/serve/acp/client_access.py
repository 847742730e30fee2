"""Uses the client's files and terminals where it offers them, so that agents see and change unsaved texts.

Rights are checked before: a wrapped tool is called only when its agent may call it, and every path goes through the
path guard of the tool itself. A command runs in the client's terminal only where our sandbox is off, because nothing
would confine it there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.schema import ClientCapabilities

from retinue.app import EditedFileTool, PathLocks
from retinue.core.tool import Tool, ToolContext, ToolResult, WrappedTool

if TYPE_CHECKING:
    from retinue.serve.acp.session import AcpSession

MAX_BYTES = 50 * 1024
ANSWER_S = 2.0
"""How long a client may take to end a terminal."""


class ClientAccess:
    """What one session may use of its client."""

    def __init__(self, request: Callable[[str, Mapping[str, Any]], Awaitable[Any]], client: ClientCapabilities) -> None:
        self._request = request
        self._client = client
        self._locks = PathLocks()
        self.session: AcpSession | None = None

    def wrap(self, tool: Tool) -> Tool:
        """Return the tool as the client's user should see it work."""
        name, files = tool.spec.name, self._client.fs
        reads, writes = bool(files and files.read_text_file), bool(files and files.write_text_file)
        if (name == "read" and reads) or (name in ("edit", "write") and (reads or writes)):
            return EditedFileTool(tool, self, self._locks)
        if name == "bash" and self._client.terminal:
            return _ClientTerminal(tool, self)
        return tool

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request to the client. Raises RequestError and ConnectionError."""
        session_id = "" if self.session is None else self.session.id
        reply = await self._request(method, {"sessionId": session_id, **params})
        return reply if isinstance(reply, dict) else {}

    async def read_text(self, path: str) -> str | None:
        if not (self._client.fs and self._client.fs.read_text_file):
            return None
        try:
            text = (await self.ask("fs/read_text_file", path=path)).get("content")
        except (RequestError, ConnectionError):
            return None
        return text if isinstance(text, str) else None

    async def save_text(self, path: str, text: str) -> bool:
        if self.session is not None:
            self.session.updates.note_text(path, text)
        return await self.show_text(path, text)

    async def show_text(self, path: str, text: str) -> bool:
        if not (self._client.fs and self._client.fs.write_text_file):
            return False
        try:
            await self.ask("fs/write_text_file", path=path, content=text)
        except (RequestError, ConnectionError):
            return False
        return True

    def show_terminal(self, call_id: str, terminal_id: str) -> None:
        """Show the client's own terminal as the content of a tool call."""
        if self.session is not None:
            self.session.updates.update_call(call_id, content=[{"type": "terminal", "terminalId": terminal_id}])


class _ClientTerminal(WrappedTool):
    """Runs a command in a terminal of the client if nothing confines commands here anyway."""

    def __init__(self, tool: Tool, access: ClientAccess) -> None:
        super().__init__(tool)
        self._access = access

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if context.confinement is not None and await context.confinement.open() is not None:
            return await self._tool.call(arguments, context)
        command = {"command": "/bin/bash", "args": ["-c", str(arguments.get("command", ""))]}
        env = [{"name": name, "value": value} for name, value in context.environment.items()]
        try:
            opened = await self._access.ask(
                "terminal/create", **command, env=env, cwd=str(context.cwd), outputByteLimit=MAX_BYTES
            )
        except (RequestError, ConnectionError):
            return await self._tool.call(arguments, context)
        terminal, timeout = {"terminalId": str(opened.get("terminalId"))}, arguments.get("timeout")
        self._access.show_terminal(context.call_id, terminal["terminalId"])
        try:
            try:
                async with asyncio.timeout(timeout if isinstance(timeout, int | float) and timeout > 0 else None):
                    reason = _explain_end(await self._access.ask("terminal/wait_for_exit", **terminal))
            except TimeoutError:
                reason = f"Command timed out after {timeout} seconds"
                await self._try("terminal/kill", terminal)
            except (RequestError, ConnectionError) as error:
                reason = f"The editor's terminal failed: {error}"
            output = (await self._try("terminal/output", terminal)).get("output")
        finally:
            # A cancelled call ends its command: releasing a terminal kills what runs in it.
            await asyncio.shield(self._try("terminal/release", terminal))
        text = context.redact(output if isinstance(output, str) else "") or "(no output)"
        return ToolResult.of(f"{text}\n\n{reason}" if reason else text, is_error=bool(reason))

    async def _try(self, method: str, terminal: Mapping[str, str]) -> dict[str, Any]:
        """Ask the client for something it may fail to do, or not answer."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._access.ask(method, **terminal)
        except (RequestError, ConnectionError, TimeoutError):
            return {}


def _explain_end(ended: Mapping[str, Any]) -> str:
    """Why a command failed; empty if it did not."""
    if ended.get("signal"):
        return f"Command was ended by the signal {ended['signal']}"
    code = ended.get("exitCode")
    return f"Command exited with code {code}" if code else ""

"""Uses the client's files and terminals where it offers them, so that agents see and change unsaved texts.

Rights are checked before: a wrapped tool is called only when its agent may call it, and every path goes through the
path guard of the tool itself. A command runs in the client's terminal only where our sandbox is off, because nothing
would confine it there.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from acp.exceptions import RequestError
from acp.schema import ClientCapabilities

from retinue.core.tool import Tool, ToolContext, ToolResult, WrappedTool
from retinue.serve.acp.updates import read_text

MAX_BYTES = 50 * 1024
MAX_LINES = 2000


class ClientAccess:
    """What one session may use of its client."""

    def __init__(
        self,
        request: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
        notify: Callable[[str, Mapping[str, Any]], None],
        client: ClientCapabilities,
    ) -> None:
        self._request = request
        self._notify = notify
        self.session_id = ""
        files = client.fs
        self.reads = bool(files and files.read_text_file)
        self.writes = bool(files and files.write_text_file)
        self.has_terminal = bool(client.terminal)

    def wrap(self, tool: Tool) -> Tool:
        """Return the tool as the client's user should see it work."""
        name = tool.spec.name
        if name in ("read", "edit", "write") and self.reads and self.writes:
            return _ClientFiles(tool, self)
        if name == "bash" and self.has_terminal:
            return _ClientTerminal(tool, self)
        return tool

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request to the client. Raises RequestError and ConnectionError."""
        reply = await self._request(method, {"sessionId": self.session_id, **params})
        return reply if isinstance(reply, dict) else {}

    def show_terminal(self, call_id: str, terminal_id: str) -> None:
        """Show the client's own terminal as the content of a tool call."""
        content = [{"type": "terminal", "terminalId": terminal_id}]
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": content}
        self._notify("session/update", {"sessionId": self.session_id, "update": update})


class _ClientFiles(WrappedTool):
    """Reads unsaved text from the client; has it saved before a change, and shows the client the text after it."""

    def __init__(self, tool: Tool, access: ClientAccess) -> None:
        super().__init__(tool)
        self._access = access

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        place = _find_place(arguments.get("path"), context)
        stored = read_text(place)
        unsaved = None if stored is None else await self._find_unsaved(place, stored)
        if self.spec.name == "read":
            # The tool decides whether the file may be read at all.
            result = await self._tool.call(arguments, context)
            return result if unsaved is None or result.is_error else _show_lines(unsaved, arguments)
        if unsaved is not None:
            await self._save(place, unsaved)
        result = await self._tool.call(arguments, context)
        if not result.is_error and (text := read_text(place)) is not None:
            await self._save(place, text)
        return result

    async def _find_unsaved(self, place: str, stored: str) -> str | None:
        """The client's text if it differs from the file."""
        try:
            text = (await self._access.ask("fs/read_text_file", path=place)).get("content")
        except (RequestError, ConnectionError):
            return None
        return text if isinstance(text, str) and text != stored else None

    async def _save(self, place: str, text: str) -> None:
        # Without the client's help the file on disk is right, and its editor notices the change by itself.
        with suppress(RequestError, ConnectionError):
            await self._access.ask("fs/write_text_file", path=place, content=text)


def _find_place(path: Any, context: ToolContext) -> str:
    return os.path.join(context.cwd, os.path.expanduser(path)) if isinstance(path, str) else ""


def _show_lines(text: str, arguments: Mapping[str, Any]) -> ToolResult:
    lines = text.splitlines()
    begin = max(1, int(arguments.get("offset") or 1))
    count = min(int(arguments.get("limit") or MAX_LINES), MAX_LINES)
    shown = "\n".join(lines[begin - 1 : begin - 1 + count])[:MAX_BYTES]
    end = begin + shown.count("\n")
    more = f"\n\n[{len(lines) - end} more lines in file. Use offset={end + 1} to continue.]" if end < len(lines) else ""
    return ToolResult.of(f"{shown}{more}" if shown else "(empty file)", {"unsaved": True})


class _ClientTerminal(WrappedTool):
    """Runs a command in a terminal of the client if nothing confines commands here anyway."""

    def __init__(self, tool: Tool, access: ClientAccess) -> None:
        super().__init__(tool)
        self._access = access

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if context.confinement is not None and await context.confinement.open() is not None:
            return await self._tool.call(arguments, context)
        ask = self._access.ask
        command = {"command": "/bin/bash", "args": ["-c", str(arguments.get("command", ""))]}
        try:
            opened = await ask("terminal/create", **command, cwd=str(context.cwd), outputByteLimit=MAX_BYTES)
        except (RequestError, ConnectionError):
            return await self._tool.call(arguments, context)
        terminal = {"terminalId": str(opened.get("terminalId"))}
        self._access.show_terminal(context.call_id, terminal["terminalId"])
        timeout = arguments.get("timeout")
        try:
            async with asyncio.timeout(timeout if isinstance(timeout, int | float) and timeout > 0 else None):
                ended = await ask("terminal/wait_for_exit", **terminal)
            reason = _explain_end(ended)
        except TimeoutError:
            await ask("terminal/kill", **terminal)
            reason = f"Command timed out after {timeout} seconds"
        except (RequestError, ConnectionError) as error:
            return ToolResult.of(f"the editor's terminal failed: {error}", is_error=True)
        finally:
            # A cancelled call ends its command: releasing a terminal kills what runs in it.
            output = await asyncio.shield(self._release(terminal))
        text = context.redact(output) or "(no output)"
        return ToolResult.of(f"{text}\n\n{reason}" if reason else text, is_error=bool(reason))

    async def _release(self, terminal: Mapping[str, str]) -> str:
        with suppress(RequestError, ConnectionError):
            shown = await self._access.ask("terminal/output", **terminal)
            await self._access.ask("terminal/release", **terminal)
            return str(shown.get("output") or "")
        return ""


def _explain_end(ended: Mapping[str, Any]) -> str:
    """Why a command failed; empty if it did not."""
    if ended.get("signal"):
        return f"Command was ended by the signal {ended['signal']}"
    code = ended.get("exitCode")
    return f"Command exited with code {code}" if code else ""

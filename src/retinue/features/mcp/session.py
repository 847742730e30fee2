"""A session with one MCP server through the MCP library: connect, initialise, list tools, call tools.

The library can raise anything that the server provokes, so only this module catches all exceptions. Imports the MCP
library, so it must be imported only when a server is used.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mcp import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from retinue.core.errors import ConfigError, quote
from retinue.core.launch import Confining
from retinue.features.approved import find_change
from retinue.features.mcp.program import Program, choose_environment, find_command
from retinue.features.mcp.server import McpFailed, McpServer, ServerTrouble
from retinue.features.mcp.tool_list import clean_text
from retinue.models.auth import is_command
from retinue.tools.process_tree import TreeProbe

if TYPE_CHECKING:
    from retinue.features.mcp.link import LiveSession

MAX_PAGES = 20
_CLOSED = -32000
T = TypeVar("T")


class McpSession:
    def __init__(self, client: Client, trouble: ServerTrouble) -> None:
        self._client = client
        self._trouble = trouble
        self.is_stale = False
        """The server announced that its tools changed."""

    @property
    def is_over(self) -> bool:
        return self._trouble.ended.is_set()

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return all tools as the server lists them. Raises McpFailed."""
        self.is_stale = False
        return await self._guard(self._list_tools())

    async def _list_tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._client.session.list_tools(params=params)
            found += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT) -> dict[str, Any]:
        """Call a tool once, without retries. Raises McpFailed."""
        # Not the library's call_tool: that validates the result against the server's schema, whose patterns could hang
        # us.
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        asked = self._client.session.send_request(request, CallToolResult, progress_callback=on_progress)
        result = await self._guard(asked)
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _guard(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except MCPError as error:
            if self.is_over:
                raise McpFailed(self._trouble.reason) from error
            text = clean_text(str(error), 2_000)
            if error.code == _CLOSED:
                self._trouble.note(text)
            raise McpFailed(text) from error
        except ValidationError as error:
            raise McpFailed(describe_failure(error)) from error
        except Exception as error:
            reason = self._trouble.reason if self.is_over else describe_failure(error)
            self._trouble.note(reason)
            raise McpFailed(reason) from error


@asynccontextmanager
async def open_session(wire: Any, trouble: ServerTrouble, limit_s: float, version: str) -> AsyncIterator[McpSession]:
    """Open a session; `wire` is an async context manager of two streams. Raises McpFailed."""
    session: McpSession | None = None

    async def hear(message: Any) -> None:
        if session is not None and isinstance(message, ToolListChangedNotification):
            session.is_stale = True

    client = Client(
        wire,
        cache=None,
        message_handler=hear,
        client_info=Implementation(name="retinue", version=version),
    )
    try:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(limit_s):
                    await stack.enter_async_context(client)
            except TimeoutError:
                trouble.note(f"it did not answer within {limit_s:g} s")
                raise
            session = McpSession(client, trouble)
            yield session
    except McpFailed:
        raise
    except Exception as error:
        reason = trouble.reason if trouble.ended.is_set() else describe_failure(error)
        trouble.note(reason)
        raise McpFailed(reason) from error
    finally:
        trouble.note("the connection is closed")


def describe_failure(error: BaseException) -> str:
    """Return the innermost reason of a failure, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        return "its answer does not fit the protocol"
    text = clean_text(" ".join(str(error).split()), 400)
    return text or type(error).__name__


def silence_library() -> None:
    """Keep the library's log off the terminal: it would contain unescaped data from the server."""
    for name in ("mcp", "client", "httpx2"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
            logger.propagate = False


INITIALISE_S = 20.0
MISSING = "the package mcp is not installed: pip install 'retinue[mcp]'"


def has_library() -> bool:
    """Return whether the MCP library is installed, without importing it."""
    return find_spec("mcp") is not None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where servers are started, and with which environment."""

    cwd: Path
    environment: Mapping[str, str]
    trees: TreeProbe
    version: str = ""
    tell: Callable[[str], None] = lambda text: None
    initialise_s: float = INITIALISE_S
    marks: Mapping[str, str] = field(default_factory=dict)
    """Variables with the nesting depth of agents, because a server may itself be retinue."""
    confining: Confining | None = None
    """The sandbox of the processes; None means none, as for the user's own programs."""
    learn: Callable[[str], None] = lambda secret: None
    """Called with each secret that a `!command` printed, so that it can be redacted."""


class Opener:
    """Opens sessions; calling it returns an async context manager."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._asked: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def __call__(self, server: McpServer, trouble: ServerTrouble) -> "AsyncIterator[LiveSession]":
        """Connect and initialise; closes everything on exit. Raises McpFailed."""
        if not has_library():
            raise McpFailed(MISSING)
        # In a thread: the import takes longer than the prompt may be blocked.
        await asyncio.to_thread(_load_library)
        from retinue.features.mcp.stdio import open_stdio

        around = self._around

        def hear(method: str) -> None:
            self._note_asked(server, method)

        if server.url:
            from retinue.features.mcp.http import open_http

            wire = open_http(server.url, await self._resolve(server, server.headers), trouble, hear)
        else:
            wire = open_stdio(lambda: self._start(server), trouble, hear)
        async with open_session(wire, trouble, around.initialise_s, around.version) as session:
            yield session

    async def _start(self, server: McpServer) -> Program:
        around = self._around
        home = around.environment.get("HOME", "")
        cwd = around.cwd / _expand(server.cwd, home) if server.cwd else around.cwd
        if not cwd.is_dir():
            raise McpFailed(f"its folder {str(cwd)!r} does not exist")
        _check_files(server)
        env = {**choose_environment(around.environment, await self._resolve(server, server.env)), **around.marks}
        program = find_command(server, _expand(server.command, home), around.cwd, env.get("PATH", os.defpath))
        argv = [program, *(_expand(text, home) for text in server.args)]
        return await Program.start(argv, str(cwd), env, around.trees, around.confining)

    async def _resolve(self, server: McpServer, values: Mapping[str, str]) -> dict[str, str]:
        """Replace `!command` values by the command's output. Raises McpFailed."""
        if not any(is_command(value) for value in values.values()):
            return dict(values)
        from retinue.models.auth import Vault

        vault = Vault(self._around.environment)
        found = dict(values)
        try:
            for name, value in values.items():
                if is_command(value):
                    found[name] = await asyncio.to_thread(vault.resolve, value, name)
                    self._around.learn(found[name])
        except ConfigError as error:
            raise McpFailed(str(error)) from error
        return found

    def _note_asked(self, server: McpServer, method: str) -> None:
        """Tell the user once that the server sent a request, which the library refuses."""
        if method != "ping" and (server.name, method) not in self._asked and len(self._asked) < 100:
            self._asked.add((server.name, method))
            self._around.tell(f"MCP server {server.name!r} asked for {method[:60]!r}, which is refused")


def _check_files(server: McpServer) -> None:
    """Raise McpFailed if a file changed since approval: an agent can change it, and it may run outside the sandbox."""
    if path := find_change(server.files):
        raise McpFailed(
            f"its file {quote(path, 200)} has changed since it was approved (to approve it again: "
            f"retinue trust --mcp {server.name})"
        )


def _expand(text: str, home: str) -> str:
    return os.path.join(home, text[2:]) if text.startswith("~/") and home else text


def _load_library() -> None:
    from importlib import import_module

    for name in ("http", "stdio", "session"):
        import_module(f"retinue.features.mcp.{name}")
    import_module("retinue.features.mcp.session").silence_library()

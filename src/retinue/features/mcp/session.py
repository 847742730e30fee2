"""A session with one MCP server through the MCP library: connect, initialise, list tools, call tools.

The library can raise anything that the server provokes, so only this module catches all exceptions. Imports the MCP
library, so it must be imported only when a server is used.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from mcp import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.types import (
    ElicitResult,
    Implementation,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from retinue.features.mcp.form import AskUser, fill_form
from retinue.features.mcp.rounds import Elicit, ServerTasks, ToolRounds
from retinue.features.mcp.server import McpFailed, ServerTrouble
from retinue.features.mcp.tool_list import clean_text

MAX_PAGES = 20
_CLOSED = -32000
T = TypeVar("T")


class McpSession:
    def __init__(self, client: Client, trouble: ServerTrouble, elicit: Elicit | None = None) -> None:
        self._client = client
        self._trouble = trouble
        self._elicit = elicit
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
        rounds = ToolRounds(self._client.session, on_progress, self._elicit)
        result = await self._guard(rounds.call(tool, arguments))
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _guard(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except McpFailed:
            raise
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
async def open_session(
    wire: Any, trouble: ServerTrouble, limit_s: float, version: str, elicit: Elicit | None = None
) -> AsyncIterator[McpSession]:
    """Open a session; `wire` is an async context manager of two streams. Raises McpFailed.

    `elicit` puts the server's questions to the user; without it they are refused.
    """
    session: McpSession | None = None

    async def hear(message: Any) -> None:
        if session is not None and isinstance(message, ToolListChangedNotification):
            session.is_stale = True

    info = Implementation(name="retinue", version=version)

    async def answer(context: Any, params: Any) -> ElicitResult:
        assert elicit is not None
        return await elicit(params)

    client = Client(
        wire,
        cache=None,
        message_handler=hear,
        client_info=info,
        elicitation_callback=None if elicit is None else answer,
        extensions=[ServerTasks()],
    )
    try:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(limit_s):
                    await stack.enter_async_context(client)
            except TimeoutError:
                trouble.note(f"it did not answer within {limit_s:g} s")
                raise
            session = McpSession(client, trouble, elicit)
            yield session
    except McpFailed:
        raise
    except Exception as error:
        reason = trouble.reason if trouble.ended.is_set() else describe_failure(error)
        trouble.note(reason)
        raise McpFailed(reason) from error
    finally:
        trouble.note("the connection is closed")


def make_elicit(server: str, ask: AskUser) -> Elicit:
    """Return what puts the questions of a server to the user; links to pages are declined."""

    async def elicit(params: Any) -> ElicitResult:
        schema = getattr(params, "requested_schema", None)
        values = None if schema is None else await fill_form(server, params.message, schema, ask)
        return ElicitResult(action="decline" if values is None else "accept", content=values)

    return elicit


def describe_failure(error: BaseException) -> str:
    """Return the innermost reason of a failure, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        return "its answer does not follow the protocol"
    text = clean_text(" ".join(str(error).split()), 400)
    return text or type(error).__name__


def silence_library() -> None:
    """Keep the library's log off the terminal: it would contain unescaped data from the server."""
    for name in ("mcp", "client", "httpx2"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
            logger.propagate = False

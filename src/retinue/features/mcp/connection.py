"""Opens a session with a configured server over the right transport. Imports the MCP library at the first need."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.environment import SERVER, count_level, select
from retinue.core.errors import ConfigError, ToolFailed, quote
from retinue.core.launch import ConfinementFactory
from retinue.features.approved import find_change, list_scripts
from retinue.features.mcp.form import AskUser
from retinue.features.mcp.server import LoginStore, McpFailed, McpServer, ServerTrouble
from retinue.models.auth import is_command
from retinue.tools.process_tree import TreeProbe
from retinue.tools.server_program import Start

if TYPE_CHECKING:
    from retinue.features.mcp.session import McpSession

INITIALISE_S = 20.0
GRACE_S = 0.3
"""Delay between SIGTERM and SIGKILL."""
MISSING = "the package mcp is not installed: pip install 'retinue[mcp]'"


def has_library() -> bool:
    """Return whether the MCP library is installed, without importing it."""
    return find_spec("mcp") is not None


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Where servers are started, and with which environment."""

    cwd: Path
    environment: Mapping[str, str]
    trees: TreeProbe
    version: str = ""
    tell: Callable[[str], None] = lambda text: None
    initialise_s: float = INITIALISE_S
    confining: ConfinementFactory | None = None
    """The sandbox of the processes; None means none, as for the user's own programs."""
    learn: Callable[[str], None] = lambda secret: None
    """Called with each secret that a `!command` printed, so that it can be redacted."""
    ask: AskUser | None = None
    """Puts a question of a server to the user; None refuses such questions."""
    logins: LoginStore | None = None
    """Where sign-ins to servers are kept."""


class McpOpener:
    """Opens sessions; calling it returns an async context manager."""

    def __init__(self, around: ServerContext) -> None:
        self._around = around
        self._asked: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def __call__(self, server: McpServer, trouble: ServerTrouble) -> "AsyncIterator[McpSession]":
        """Connect and initialise; closes everything on exit. Raises McpFailed."""
        # In a thread: the import takes longer than the prompt may be blocked.
        await asyncio.to_thread(_load_library)
        from retinue.features.mcp.session import make_elicit, open_session
        from retinue.features.mcp.transport import open_http, open_stdio

        around, hear = self._around, partial(self._note_asked, server)
        if server.url:
            auth = None
            if around.logins is not None and server.can_log_in:
                from retinue.features.mcp.login import StoredLogin

                auth = StoredLogin(server, around.logins, around.learn, trouble.note)
            wire = open_http(server.url, await self._resolve(server, server.headers), trouble, hear, auth)
        else:
            wire = open_stdio(await self._prepare(server), trouble, hear)
        elicit = None if around.ask is None else make_elicit(server.name, around.ask)
        async with open_session(wire, trouble, around.initialise_s, around.version, elicit) as session:
            yield session

    async def log_in(self, server: McpServer, show: Callable[[str], Awaitable[None]], limit_s: float) -> bool:
        """Sign in to a server through the user's browser; False if it asks for no sign-in. Raises McpFailed."""
        around = self._around
        assert around.logins is not None
        _load_library()
        from retinue.features.mcp.browser_login import log_in

        headers = await self._resolve(server, server.headers)
        return await log_in(server, around.logins, around.learn, show, headers, limit_s)

    async def _prepare(self, server: McpServer) -> Start:
        """Return what is needed to start a server, in the sandbox if there is one. Raises McpFailed."""
        around = self._around
        home = around.environment.get("HOME", "")
        cwd = around.cwd / _expand(server.cwd, home) if server.cwd else around.cwd
        if not cwd.is_dir():
            raise McpFailed(f"its folder {str(cwd)!r} does not exist")
        # An agent can change the file, and it may run outside the sandbox.
        if path := find_change(server.files):
            raise McpFailed(
                f"its file {quote(path, 200)} has changed since it was approved (to approve it again: "
                f"retinue trust --mcp {server.name})"
            )
        own = {**select(around.environment, SERVER), **await self._resolve(server, server.env)}
        # A server may itself be retinue.
        env = {**own, **count_level(around.environment)}
        program = find_command(server, _expand(server.command, home), around.cwd, env.get("PATH", os.defpath))
        argv = [program, *(_expand(text, home) for text in server.args)]
        try:
            confinement = None if around.confining is None else await around.confining.open()
        except ToolFailed as error:
            raise McpFailed(str(error)) from error
        shown = list_scripts(argv)
        return Start(argv, str(cwd), env, confinement, around.trees, shown, passes_all=True, grace_s=GRACE_S)

    async def _resolve(self, server: McpServer, values: Mapping[str, str]) -> dict[str, str]:
        """Replace `!command` values by the command's output. Raises McpFailed."""
        if not any(is_command(value) for value in values.values()):
            return dict(values)
        from retinue.models.auth import SecretResolver

        resolver = SecretResolver(self._around.environment)
        found = dict(values)
        try:
            for name, value in values.items():
                if is_command(value):
                    found[name] = await asyncio.to_thread(resolver.resolve, value, name)
                    self._around.learn(found[name])
        except ConfigError as error:
            raise McpFailed(str(error)) from error
        return found

    def _note_asked(self, server: McpServer, method: str) -> None:
        """Tell the user once that the server sent a request, which the library refuses."""
        is_answered = method == "ping" or (method == "elicitation/create" and self._around.ask is not None)
        if not is_answered and (server.name, method) not in self._asked and len(self._asked) < 100:
            self._asked.add((server.name, method))
            self._around.tell(f"MCP server {server.name!r} sent the request {method[:60]!r}, which is refused")


def find_command(server: McpServer, command: str, cwd: Path, path: str) -> str:
    """Return the program to start. Raises McpFailed.

    A bare name is searched outside of the working directory only: a cloned repository may contain its own `npx`. Only a
    project's entry may have a relative path.
    """
    if os.sep in command:
        if not os.path.isabs(command) and server.level != "project":
            raise McpFailed(f"its command {quote(command)} is a relative path; use an absolute one")
        found = os.path.join(cwd, command)
        if not os.access(found, os.X_OK) or os.path.isdir(found):
            raise McpFailed(f"its command {quote(command, 200)} is not a program")
        return found
    folders = [
        folder for folder in path.split(os.pathsep) if os.path.isabs(folder) and not Path(folder).is_relative_to(cwd)
    ]
    program = shutil.which(command, path=os.pathsep.join(folders))
    if program is None:
        raise McpFailed(f"its command {quote(command)} is not found in PATH")
    return program


def _expand(text: str, home: str) -> str:
    return os.path.join(home, text[2:]) if text.startswith("~/") and home else text


def _load_library() -> None:
    """Raises McpFailed if it is not installed."""
    if not has_library():
        raise McpFailed(MISSING)
    from retinue.features.mcp import session, transport  # noqa: F401

    session.silence_library()

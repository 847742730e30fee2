"""The MCP servers of one Retinue: configured at its start, connected on demand, closed with it.

Loaded only if a file names servers.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from msgspec import structs

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.diagnostics import suggest
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.tool import Effect, Tool
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Additions
from retinue.engine.setup import Feature, RunSetup
from retinue.features.mcp.connection import McpOpener, ServerContext
from retinue.features.mcp.form import AskUser
from retinue.features.mcp.pool import ServerLease, ServerPool
from retinue.features.mcp.server import PREFIX, McpFailed, choose_servers, find_named, find_server
from retinue.features.mcp.tool import McpTool
from retinue.settings.config import Config
from retinue.settings.layers import load_settings
from retinue.settings.mcp import load_servers
from retinue.settings.paths import find_paths
from retinue.settings.request import Request
from retinue.settings.stored_keys import StoredKeys
from retinue.tools.process_tree import TreeProbe
from retinue.tools.selectors import match_denied, match_tools


class McpServers:
    """Gives runs the tools of the servers that they may use."""

    def __init__(
        self,
        config: Config,
        request: Request,
        environment: Mapping[str, str],
        clock: Clock,
        *,
        trees: TreeProbe,
        tell: Callable[[str], None],
        learn: Callable[..., None] = lambda *secrets: None,
        ask: AskUser | None = None,
    ) -> None:
        """`tell` receives one line per problem, `learn` each secret in an entry; `ask` puts questions to the user."""
        self._found = load_servers(config.paths, environment, trusted=config.is_trusted, given=request.mcp_servers)
        learn(*(secret for item in self._found.found for secret in item.server.secrets))
        for text in (*(each.message for each in self._found.diagnostics), *(item.notice for item in self._found.found)):
            if text:
                tell(text)
        self._always = config.crew.settings.always_exposed_extensions
        self._denied = config.crew.settings.deny_tools
        self._wanted, self._excluded = request.tools, request.exclude_tools
        self._tell = tell
        around = ServerContext(config.paths.cwd, environment, trees, _find_version(), tell)
        around = replace(around, learn=learn, ask=ask, logins=StoredKeys(config.paths, environment))
        self._boundary = config.boundaries.surround_place(config.paths.cwd, readonly=True)
        confined = McpOpener(replace(around, confining=self._boundary))
        self._pool = ServerPool(self._found.ready, McpOpener(around), clock, tell, open_confined=confined)
        self._is_readonly = request.is_readonly
        self._servers = self._pool.servers
        self._is_open = False
        self._main: ServerLease | None = None
        self._names: list[str] = []
        self._given: set[str] = set()
        self._admit: Callable[[Iterable[str]], None] | None = None

    async def load_main(self, definition: Definition | None) -> Additions:
        """Return the main agent's tools with a definition, otherwise a feature that adds tools when it is prompted."""
        await self._pool.__aenter__()
        self._is_open = True
        if definition is not None:
            self._is_readonly = self._is_readonly or definition.readonly
            self._names = choose_servers(definition, self._servers, always=self._always)
        else:
            self._names = list(self._servers) if self._wanted is None else find_named(self._wanted, self._servers)
        if definition is not None:
            self._warn_unknown(definition)
            self._hold()
            return _to_additions(await self._pool.list_tools(self._names, readonly=self._is_readonly))
        return Additions(features=(_MainTools(self._list_main),)) if self._names else Additions()

    async def load_child(self, definition: Definition, request: RunRequest) -> Additions:
        """Return what a run of a definition gets, with a lease on its servers that it releases at its end.

        The caller has set `definition.readonly` if anything makes the run read-only.
        """
        is_exact = request.surface == "subagent"
        names = choose_servers(
            definition, self._servers, isolated=request.isolated, exact=is_exact, always=self._always
        )
        self._warn_unknown(definition)
        # No run has more than the main agent, so servers that it may not use are not waited for.
        names = [name for name in names if name in self._names]
        if not names:
            return Additions()
        lease = self._pool.lease(names, readonly=definition.readonly)
        try:
            tools = await self._pool.list_tools(names, readonly=definition.readonly)
        except BaseException:
            lease.release()
            raise
        self._give(tools)
        return structs.replace(_to_additions(tools), release=lease.release)

    def may_have(self, word: str) -> bool:
        """Return whether a word on the command line may name a tool of a server."""
        return bool(find_named([word], self._servers)) and (":" in word or find_server(word, self._servers) is not None)

    def join(self, admit: Callable[[Iterable[str]], None]) -> None:
        """Call `admit` with the tools that the main agent may use, now and whenever there are more."""
        self._admit = admit
        admit(self._given)

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._pool.close()
            self._boundary.close()

    def _hold(self) -> None:
        """Lease the main agent's servers, from its first prompt on."""
        if self._main is None:
            self._main = self._pool.lease(self._names, readonly=self._is_readonly)

    async def _list_main(self) -> dict[str, Tool]:
        self._hold()
        tools = await self._pool.list_tools(self._names, readonly=self._is_readonly)
        return dict(self._give(tools))

    def _give(self, tools: Mapping[str, McpTool]) -> dict[str, McpTool]:
        """Return the tools that the main agent may use: no run may have more."""
        chosen = {name: tool for name, tool in tools.items() if self._is_wanted(name, tool)}
        self._given.update(chosen)
        if self._admit is not None:
            self._admit(chosen)
        return chosen

    def _is_wanted(self, name: str, tool: McpTool) -> bool:
        def is_named(words: Iterable[str]) -> bool:
            offers = {name: tool.offer}
            return any(
                bool(match_tools(word, offers, {})) or (word.startswith(PREFIX) and fnmatchcase(name, word))
                for word in words
            )

        is_denied = bool(match_denied(self._denied, {name: tool.offer}, {}))
        if self._is_readonly and tool.effect is not Effect.READ:
            return False
        return (self._wanted is None or is_named(self._wanted)) and not is_denied and not is_named(self._excluded)

    def _warn_unknown(self, definition: Definition) -> None:
        for name in definition.mcp_servers:
            if name in self._servers:
                continue
            found = self._found.find(name)
            if found is None:
                reason = f"is not configured{suggest(name, self._servers)}"
            else:
                reason = "is disabled" if found.state == "disabled" else "waits for approval"
            self._tell(f"agent {quote(definition.name)}: MCP server {quote(name)} {reason}; it continues without it")


class _MainTools(Feature):
    """Adds the tools of servers to the main agent at each prompt: the first prompt waits for servers, not the start."""

    name = "mcp"

    def __init__(self, list_tools: Callable[[], Awaitable[Mapping[str, Tool]]]) -> None:
        self._list = list_tools

    async def enter(self, setup: RunSetup) -> RunSetup:
        found = await self._list()
        return setup.change(tools={**setup.tools, **{name: found[name] for name in found if name not in setup.tools}})


async def log_in(
    name: str, approve: bool | None, show: Callable[[str], Awaitable[None]], limit_s: float
) -> tuple[bool, str]:
    """Sign in to a server; returns whether it asked for a sign-in, and where that is stored. Raises RetinueError."""
    paths = find_paths(".", os.environ)
    trusted = load_settings(paths, os.environ, approve=approve).trust.trusted
    servers = load_servers(paths, os.environ, trusted=trusted)
    found = servers.find(name)
    if found is None:
        known = [item.server.name for item in servers.found if item.server.url]
        problem = next((each.message for each in servers.diagnostics if each.severity == "error"), "")
        why = suggest(name, known) or (f"; with a url: {', '.join(known)}" if known else problem and f" ({problem})")
        raise UsageError(f"there is no MCP server {quote(name)}{why}")
    if found.state != "ready":
        raise UsageError(found.notice or f"MCP server {quote(name)} is disabled")
    if not found.server.can_log_in:
        what = "has an Authorization header in its entry" if found.server.url else "runs on this machine"
        raise UsageError(f"MCP server {quote(name)} {what}, so there is nothing to sign in to")
    store = StoredKeys(paths, os.environ)
    around = ServerContext(paths.cwd, os.environ, TreeProbe(), logins=store)
    try:
        return await McpOpener(around).log_in(found.server, show, limit_s), str(store.path)
    except McpFailed as error:
        raise RetinueError(f"MCP server {quote(name)}: {error}; nothing is stored") from None


def _to_additions(tools: Mapping[str, McpTool]) -> Additions:
    return Additions(tools=dict(tools), offers={name: tool.offer for name, tool in tools.items()})


def _find_version() -> str:
    from importlib.metadata import version

    return version("retinue")

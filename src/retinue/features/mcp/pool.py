"""All MCP servers of a session: connected concurrently when first needed, each closed with its last lease."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from retinue.core.clock import Clock
from retinue.features.mcp.link import OpenSession, ServerLink
from retinue.features.mcp.server import McpFailed, McpServer, name_tools
from retinue.features.mcp.tool import McpTool

WAIT_S = 10.0
"""How long a run waits for tools; slower servers are available to the next run."""
LATE_S = 0.3
"""How long later runs wait for a server that was too slow before."""
CLOSE_S = 1.6


class ServerLease:
    """Keeps some servers connected for a run."""

    def __init__(self, links: Sequence[ServerLink]) -> None:
        self._links = links
        for link in links:
            link.hold(self)

    def release(self) -> None:
        """End the lease; may be called repeatedly."""
        links, self._links = self._links, ()
        for link in links:
            link.let_go(self)


class ServerPool:
    """The servers of a session. Use it as an async context manager."""

    def __init__(
        self,
        servers: Iterable[McpServer],
        open_session: OpenSession,
        clock: Clock,
        tell: Callable[[str], None],
        *,
        open_confined: OpenSession | None = None,
    ) -> None:
        """`tell` receives each problem once; `open_confined` starts server processes for read-only runs."""
        self._group = asyncio.TaskGroup()
        self._links = {server.name: ServerLink(server, open_session, clock, self._group) for server in servers}
        # A remote server is the same for all runs, so it needs no confined variant.
        self._confined = {
            name: link
            if open_confined is None or link.server.url
            else ServerLink(link.server, open_confined, clock, self._group, is_confined=True)
            for name, link in self._links.items()
        }
        self._all = [*dict.fromkeys((*self._links.values(), *self._confined.values()))]
        self._tell = tell
        self._told: set[str] = set()
        self._late: set[ServerLink] = set()

    @property
    def servers(self) -> Mapping[str, McpServer]:
        return {name: link.server for name, link in self._links.items()}

    @property
    def connected(self) -> list[str]:
        return [*dict.fromkeys(link.server.name for link in self._all if link.is_connected)]

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect all servers concurrently; returns after a limited time."""
        for link in self._all:
            link.disconnect()
        try:
            async with asyncio.timeout(CLOSE_S):
                for link in self._all:
                    await link.wait_closed()
        except TimeoutError:
            for link in self._all:
                link.abort()
        await self._group.__aexit__(None, None, None)

    def lease(self, names: Iterable[str], *, readonly: bool = False) -> ServerLease:
        return ServerLease(self._choose(names, readonly=readonly))

    def _choose(self, names: Iterable[str], *, readonly: bool) -> list[ServerLink]:
        """Return the links; a read-only run never shares a process that may write."""
        return [(self._confined if readonly else self._links)[name] for name in names]

    async def list_tools(
        self, names: Iterable[str], limit_s: float = WAIT_S, *, readonly: bool = False
    ) -> dict[str, McpTool]:
        """Return the tools of some servers by the name the model sees; failing or slow servers contribute none."""
        links = self._choose(names, readonly=readonly)
        if not links:
            return {}
        tasks = {link: self._group.create_task(self._list(link)) for link in links}
        # Only these tasks are cancelled: a slow server's connection attempt continues for the next run.
        try:
            prompt = [task for link, task in tasks.items() if link not in self._late]
            if prompt:
                await asyncio.wait(prompt, timeout=limit_s)
            await asyncio.wait(tasks.values(), timeout=min(LATE_S, limit_s))
        finally:
            for task in tasks.values():
                task.cancel()
        found: dict[str, McpTool] = {}
        for link, task in tasks.items():
            if not task.done() or task.cancelled():
                if link not in self._late:
                    self._report(link, f"not connected within {limit_s:g} s; its tools are missing")
                self._late.add(link)
                continue
            self._late.discard(link)
            for tool in task.result():
                if found.setdefault(tool.spec.name, tool) is not tool:
                    self._report(link, f"its tool {tool.spec.name} has the name of another server's tool: skipped")
        return found

    async def _list(self, link: ServerLink) -> list[McpTool]:
        """Return a server's tools; empty if it fails. Must not raise: all servers share the task group."""
        try:
            listed, problems = await link.list_tools()
        except McpFailed as failure:
            self._report(link, str(failure))
            return []
        except TimeoutError:
            self._report(link, "it does not list its tools")
            return []
        for problem in problems:
            self._report(link, problem)
        names = name_tools(link.server.name, [tool.name for tool in listed])
        return [McpTool(link, tool, names[tool.name]) for tool in listed]

    def _report(self, link: ServerLink, problem: str) -> None:
        where = ", started for read-only agents (no writing, no network)" if link.is_confined else ""
        text = f"MCP server {link.server.name!r}{where}: {problem}"
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

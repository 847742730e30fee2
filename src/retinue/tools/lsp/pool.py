"""Starts and stops the language servers of one process: one per project, shared by all runs.

A server that has ended is restarted a limited number of times. Read-only runs use separate servers inside a read-only
sandbox. A request that was pending when a server ended is never repeated.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.sandbox.profile import is_below
from retinue.tools.lsp.jsonrpc import LspFailed, NoServer
from retinue.tools.lsp.python_environment import activate, find_environment
from retinue.tools.lsp.servers import SERVERS, LanguageServer, choose_environment, find_checkout, find_command
from retinue.tools.lsp.session import LspBounds, LspSession
from retinue.tools.process_tree import TreeProbe
from retinue.tools.server_program import Start

if TYPE_CHECKING:
    from retinue.sandbox.confinement import OpenConfinement

CLOSE_S = 1.2
PYTHON = "python"
TRUST = "a person can trust it with: retinue trust --yes"


async def draw_nothing(root: str, readonly: bool) -> "OpenConfinement | None":
    """The default for a process without a sandbox: read-only runs get no server."""
    if readonly:
        raise LspFailed("a read-only agent gets no language server without a sandbox")
    return None


@dataclass(frozen=True, slots=True)
class PoolContext:
    """Where servers are started and what they may access."""

    environment: Mapping[str, str]
    trees: TreeProbe = field(default_factory=TreeProbe)
    draw: Callable[[str, bool], Awaitable["OpenConfinement | None"]] = draw_nothing
    """Returns the sandbox of a server that works in a directory; None for none."""
    trusted: bool = True
    """Whether servers may run programs of the project."""
    is_open: bool = False
    """Whether nothing in the project needs trust; then such servers may run inside a sandbox."""
    python: str = ""
    """The preferred program for Python."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A server, its project, and for which kind of run."""

    server: LanguageServer
    root: str
    readonly: bool
    workspace: str


class LspPool:
    """All running servers of a process."""

    def __init__(self, ground: PoolContext, bounds: LspBounds | None = None) -> None:
        self.ground = ground
        self.bounds = bounds or LspBounds()
        self._group = asyncio.TaskGroup()
        self._is_open = False
        self._posts: dict[tuple[str, str, bool, str], _ServerSlot] = {}

    async def reach(self, place: ServerPlace) -> LspSession:
        """Return a server that can be asked. Raises NoServer if there is none, LspFailed if it cannot be reached."""
        if not self._is_open:
            await self._group.__aenter__()
            self._is_open = True
        python = self._find_python(place)
        key = (place.server.id, place.root, place.readonly, python)
        post = self._posts.get(key)
        if post is None:
            self._make_room()
            post = self._posts[key] = _ServerSlot(place, self, python)
        return await post.reach(self._group)

    def find_command(self, server: LanguageServer, workspace: str) -> tuple[str, ...] | None:
        """Return the command of a server; None if it is not installed."""
        # No program inside the checkout is started, even if the workspace is only a part of it.
        grounds = find_checkout(workspace) or workspace
        return find_command(server, self.ground.environment, grounds, preferred=self.ground.python)

    def _find_python(self, place: ServerPlace) -> str:
        """Return the project's environment, for a Python server; a new environment gets a server of its own."""
        if place.server.id != PYTHON:
            return ""
        return find_environment(place.root, find_checkout(place.workspace) or place.workspace, self.ground.environment)

    def _make_room(self) -> None:
        """Forget servers that have ended; if there are too many, stop the one that was idle longest.

        Raises LspFailed if all are busy.
        """
        for key, post in tuple(self._posts.items()):
            if post.is_forgettable:
                del self._posts[key]
        running = self.list_sessions()
        if len(running) < self.bounds.servers:
            return
        idle = [session for session in running if not session.is_busy]
        if not idle:
            raise LspFailed(f"{len(running)} language servers are at work, which is the limit; try again later")
        min(idle, key=lambda session: session.used_s).stop()

    def list_sessions(self) -> list[LspSession]:
        lines = [post.line for post in self._posts.values()]
        return [line.session for line in lines if line is not None and line.is_usable]

    async def restart(self, servers: tuple[LanguageServer, ...] = SERVERS) -> int:
        """Stop running servers so that the next request starts them again, including those that were given up."""
        ended = 0
        for key, post in tuple(self._posts.items()):
            if post.place.server in servers:
                ended += post.line is not None and post.line.is_usable
                await post.stop()
                del self._posts[key]
        return ended

    async def close(self) -> None:
        """Stop all servers concurrently; returns in bounded time."""
        if not self._is_open:
            return
        self._is_open = False
        posts, self._posts = list(self._posts.values()), {}
        for post in posts:
            post.dismiss()
        try:
            async with asyncio.timeout(CLOSE_S):
                for post in posts:
                    await post.wait_over()
        except TimeoutError:
            for post in posts:
                post.abort()
        await self._group.__aexit__(None, None, None)
        self._group = asyncio.TaskGroup()


class _Line:
    """One attempt to start a server, and the server if it succeeds."""

    def __init__(self, session: LspSession) -> None:
        self.session = session
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_usable(self) -> bool:
        return not self.over.is_set() and self.session.is_usable

    def fail(self, failure: LspFailed) -> None:
        if not self.ready.done():
            self.ready.set_exception(failure)
            self.ready.exception()  # mark as retrieved: the waiting caller may be gone


class _ServerSlot:
    """One server of a project: its current attempt and its failures."""

    def __init__(self, place: ServerPlace, pool: LspPool, python: str) -> None:
        self.place = place
        self._python = python
        self.line: _Line | None = None
        self._pool = pool
        self._opening = asyncio.Lock()
        self._failures = 0
        self._failed_s = 0.0
        self._reason = ""
        self._loop = asyncio.get_running_loop()

    async def reach(self, group: asyncio.TaskGroup) -> LspSession:
        async with self._opening:
            line = self.line
            if line is None or not line.is_usable:
                if line is not None:
                    await line.over.wait()
                line = self.line = await self._begin(group)
        # Cancel only our wait: the server that is starting serves the next caller.
        await asyncio.shield(line.ready)
        return line.session

    @property
    def is_forgettable(self) -> bool:
        """Whether no server runs and there were no failures."""
        return self.line is not None and self.line.over.is_set() and not self._failures

    async def stop(self) -> None:
        self.dismiss()
        await self.wait_over()

    def dismiss(self) -> None:
        if self.line is not None:
            self.line.session.stop()
            if not self.line.ready.done() and self.line.task is not None:
                self.line.task.cancel()

    async def wait_over(self) -> None:
        if self.line is not None:
            await self.line.over.wait()

    def abort(self) -> None:
        if self.line is not None and self.line.task is not None:
            self.line.task.cancel()

    async def _begin(self, group: asyncio.TaskGroup) -> _Line:
        place, bounds, ground = self.place, self._pool.bounds, self._pool.ground
        server = place.server
        if self._failures > bounds.restarts:
            if self._loop.time() - self._failed_s < bounds.rest_s:
                raise LspFailed(f"{server.id} server: gave up after {bounds.restarts} restarts: {self._reason}")
            self._failures = bounds.restarts
        command = self._pool.find_command(server, place.workspace)
        if command is None:
            raise NoServer(f"the {server.id} language server is not installed: {server.install}")
        confinement = await ground.draw(place.root, place.readonly)
        if server.runs_code and not (ground.trusted or (ground.is_open and confinement is not None)):
            if confinement is not None:
                confinement.close()
            raise NoServer(
                f"the {server.id} language server may run programs of this project, which is not trusted; {TRUST}"
            )
        program = os.path.basename(command[0])
        if server.id == PYTHON and program != "ty" and confinement is None and not ground.trusted:
            raise NoServer(
                f"{program} runs the Python of this project, which is not trusted, and there is no sandbox; {TRUST}"
            )
        environment = choose_environment(ground.environment, find_checkout(place.workspace) or place.workspace)
        environment = activate(self._python, environment) if self._python else environment
        # A project's environment may be a link to anywhere, so only an environment outside the project is made visible.
        own = self._python if not is_below(self._python, (place.root,)) else ""
        visible = (os.path.dirname(command[0]), place.root, *filter(None, (own,)))
        start = Start(command, place.root, environment, confinement, ground.trees, visible)
        line = _Line(LspSession(server, start, bounds, self._python))
        line.task = group.create_task(self._serve(line, confinement))
        return line

    async def _serve(self, line: _Line, confinement: "OpenConfinement | None") -> None:
        """Run a server to its end. Never raises, because the task group is shared by all servers."""
        begun_s = self._loop.time()

        def tell_ready() -> None:
            if not line.ready.done():
                line.ready.set_result(None)

        failure = "it was shut down"
        try:
            failure = await line.session.serve(tell_ready)
        finally:
            if confinement is not None:
                confinement.close()
            if failure and not line.session.is_stopping:
                self._note(failure, begun_s)
            line.fail(LspFailed(f"{self.place.server.id} server: {failure or 'it was shut down'}"))
            line.over.set()

    def _note(self, reason: str, begun_s: float) -> None:
        now_s = self._loop.time()
        if now_s - begun_s > self._pool.bounds.rest_s:
            self._failures = 0
        self._failures += 1
        self._failed_s, self._reason = now_s, reason

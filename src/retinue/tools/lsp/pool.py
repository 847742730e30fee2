"""All language servers of one process: each started once per project for all who ask, again when it is gone, not for
ever, and none of them left in the end.

A read-only run has a server of its own kind, which runs inside the read-only boundary. A request that was on its way
when a server went is never repeated.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.tools.lsp.jsonrpc import LspFailed, NoServer
from retinue.tools.lsp.program import Start, choose_environment
from retinue.tools.lsp.python_environment import activate, find_environment
from retinue.tools.lsp.servers import SERVERS, LanguageServer, find_checkout, find_command
from retinue.tools.lsp.session import LspBounds, LspSession
from retinue.tools.process_tree import TreeProbe

if TYPE_CHECKING:
    from retinue.sandbox.confinement import OpenConfinement

CLOSE_S = 1.2
PYTHON = "python"
TRUST = "a person can trust it with: retinue trust --yes"


async def draw_nothing(root: str, readonly: bool) -> "OpenConfinement | None":
    """For a process without boundaries. A read-only run gets no server there."""
    if readonly:
        raise LspFailed("a read-only agent gets no language server without a sandbox")
    return None


@dataclass(frozen=True, slots=True)
class PoolContext:
    """Where servers are started and what they may see."""

    environment: Mapping[str, str]
    trees: TreeProbe = field(default_factory=TreeProbe)
    draw: Callable[[str, bool], Awaitable["OpenConfinement | None"]] = draw_nothing
    """The boundary of a server that works in a directory; None for none."""
    trusted: bool = True
    """Whether programs of the project may be run by those servers that do such things."""
    is_open: bool = False
    """Whether nothing of the project needs trust: then such servers may work inside a boundary."""
    python: str = ""
    """Which program for Python is preferred."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Which server, where, and for whom."""

    server: LanguageServer
    root: str
    readonly: bool
    workspace: str


class LspPool:
    """The servers that run, and those that may."""

    def __init__(self, ground: PoolContext, bounds: LspBounds | None = None) -> None:
        self.ground = ground
        self.bounds = bounds or LspBounds()
        self._group = asyncio.TaskGroup()
        self._is_open = False
        self._posts: dict[tuple[str, str, bool, str], _Post] = {}

    async def reach(self, place: ServerPlace) -> LspSession:
        """A server that can be asked. Raises Unsupported where there is none, LspFailed where it cannot be reached."""
        if not self._is_open:
            await self._group.__aenter__()
            self._is_open = True
        python = self._find_python(place)
        key = (place.server.id, place.root, place.readonly, python)
        post = self._posts.get(key)
        if post is None:
            self._make_room()
            post = self._posts[key] = _Post(place, self, python)
        return await post.reach(self._group)

    def find_command(self, server: LanguageServer, workspace: str) -> tuple[str, ...] | None:
        """How a server would be started; None when it is not installed."""
        # Nothing of the whole checkout is started, wherever in it the work is done.
        grounds = find_checkout(workspace) or workspace
        return find_command(server, self.ground.environment, grounds, preferred=self.ground.python)

    def _find_python(self, place: ServerPlace) -> str:
        """The environment of the project, for a server of Python: one that is made later has a server of its own."""
        if place.server.id != PYTHON:
            return ""
        return find_environment(place.root, find_checkout(place.workspace) or place.workspace, self.ground.environment)

    def _make_room(self) -> None:
        """Forget who is gone, and shut down who was idle the longest when there are too many.

        Raises LspFailed when all of them work.
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
        """Those that can be asked now."""
        lines = [post.line for post in self._posts.values()]
        return [line.session for line in lines if line is not None and line.is_usable]

    async def restart(self, servers: tuple[LanguageServer, ...] = SERVERS) -> int:
        """End those that run, so that the next request starts them anew; also those that were given up."""
        ended = 0
        for key, post in tuple(self._posts.items()):
            if post.place.server in servers:
                ended += post.line is not None and post.line.is_usable
                await post.stop()
                del self._posts[key]
        return ended

    async def close(self) -> None:
        """End all, side by side; returns soon, whatever they do."""
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
    """One attempt at a server, and the server if it succeeds."""

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
            self.ready.exception()  # nobody may be waiting any more, which is no mistake


class _Post:
    """A place for one server, and what is known of how it keeps."""

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
        # Only our waiting is cancelled: the server that is being started serves the next one.
        await asyncio.shield(line.ready)
        return line.session

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing runs here, and nothing is held against it."""
        return self.line is not None and self.line.over.is_set() and not self._failures

    async def stop(self) -> None:
        """End it and wait for that."""
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
                raise LspFailed(f"{server.id} server: given up after {bounds.restarts} restarts: {self._reason}")
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
        start = Start(command, place.root, environment, confinement, ground.trees, self._python)
        line = _Line(LspSession(server, start, bounds))
        line.task = group.create_task(self._serve(line, confinement))
        return line

    async def _serve(self, line: _Line, confinement: "OpenConfinement | None") -> None:
        """From start to end. Never raises: the group is everybody's."""
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

"""An MCP server process: its pipes, the end of its error output, and its reliable termination.

Must not know the protocol.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from retinue.core.errors import ToolFailed, quote
from retinue.core.launch import Confinement, ConfinementFactory, Launch, Spawned, Stdio
from retinue.features.mcp.server import McpFailed, McpServer
from retinue.features.mcp.tool_list import clean_text
from retinue.tools.process import ProcessCommand, to_command
from retinue.tools.process_tree import Tree, TreeProbe, kill_launcher, kill_processes, list_descendants
from retinue.tools.process_usage import ExceededLimit, UsageMonitor
from retinue.tools.truncate import render_size

MAX_MESSAGE = 10 * 1024 * 1024
"""Bytes of one line: enough for an image."""
MAX_COMPLAINT = 4_000
GRACE_S = 0.3
"""Delay between closing the input, SIGTERM and SIGKILL."""
REAP_S = 0.5
_POLL_S = 0.01


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


class Program:
    def __init__(self, process: "subprocess.Popen[bytes] | Spawned", tree: Tree, lifeline: int) -> None:
        self._process = process
        self._tree = tree
        self._lifeline = lifeline
        self._complaint = b""
        self._status: int | None = None
        self._release: Callable[[], None] | None = None
        self._usage_monitor: UsageMonitor | None = None
        self._excess = ExceededLimit()
        self._readers: list[asyncio.ReadTransport] = []
        self.input: PipeInlet
        self.output: asyncio.StreamReader
        self._errors: asyncio.StreamReader

    @classmethod
    async def start(
        cls,
        argv: list[str],
        cwd: str,
        env: Mapping[str, str],
        trees: TreeProbe,
        confining: ConfinementFactory | None = None,
    ) -> Self:
        """Start the server in its own process tree, and in the sandbox if there is one. Raises McpFailed."""
        confinement = None if confining is None else await confining.open()
        try:
            if confinement is None:
                return await cls._start(ProcessCommand(argv, cwd, env), await trees.find(), None)
            launch = _confine(confinement, argv, cwd, env)
            return await cls._start(*to_command(launch), launch.release)
        except ToolFailed as error:
            raise McpFailed(str(error)) from error
        except (OSError, ValueError) as error:
            raise McpFailed(f"it cannot be started: {getattr(error, 'strerror', None) or error}") from error

    @classmethod
    async def _start(cls, command: ProcessCommand, tree: Tree, release: Callable[[], None] | None) -> Self:
        ours: list[int] = []
        theirs: list[int] = []
        for is_input in (True, False, False, True):  # stdin, stdout, stderr and the lifeline
            reading, writing = os.pipe()
            ours.append(writing if is_input else reading)
            theirs.append(reading if is_input else writing)
        try:
            process = _spawn(command, tree, Stdio(theirs[1], theirs[2], theirs[3], theirs[0]))
        except BaseException:
            for handle in ours:
                os.close(handle)
            if release is not None:
                release()
            raise
        finally:
            for handle in theirs:
                os.close(handle)
        program = cls(process, tree, ours[3])
        program._release = release
        if command.bounds:
            program._usage_monitor = UsageMonitor(lambda: process.pid, tree.kind, command.bounds, program._end_excess)
        program.input = PipeInlet(ours[0])
        try:
            program.output = await program._open_reader(ours[1])
            program._errors = await program._open_reader(ours[2])
        except BaseException:
            program.cut()
            raise
        return program

    async def _open_reader(self, handle: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=MAX_MESSAGE)
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(handle, "rb", 0))
        self._readers.append(transport)
        return reader

    @property
    def pid(self) -> int:
        """The pid; 0 until the fork server has reported it."""
        return self._process.pid

    @property
    def _code(self) -> int | None:
        if self._status is None:
            try:
                self._status = self._process.poll()
            except OSError as error:
                self._complaint += str(error).encode()
                self._status = 1
        return self._status

    async def read_complaints(self) -> None:
        """Read all error output and keep its end."""
        with suppress(OSError):
            while piece := await self._errors.read(65_536):
                self._complaint = (self._complaint + piece)[-MAX_COMPLAINT:]

    def _end_excess(self, excess: ExceededLimit) -> None:
        self._excess = excess
        self._kill()

    def describe_end(self) -> str:
        if self._excess.memory:
            return f"the sandbox killed it: it used more than {render_size(self._excess.memory)} of memory"
        code = self._code
        text = clean_text(self._complaint.decode("utf-8", "replace").strip(), MAX_COMPLAINT)
        last = text.rpartition("\n")[2].strip()
        how = "it closed its output" if code is None else f"it was killed by {_name_signal(-code)}"
        if code is not None and code >= 0:
            how = f"it exited with status {code}"
        return f"{how}: {last[:300]}" if last else how

    async def stop(self) -> None:
        """End the server and its children: close its input, then SIGTERM, then SIGKILL."""
        try:
            self.input.close()
            if not await self.wait_ended(GRACE_S):
                pids = self._tree.select(list_descendants(self.pid))
                kill_processes([*pids, *([self.pid] if self._tree.kind == "plain" else ())], signal.SIGTERM)
                await self.wait_ended(GRACE_S)
        finally:
            self._kill()
        await self.wait_ended(REAP_S)
        self.cut()

    def cut(self) -> None:
        """Kill the server without waiting and close its pipes; may be called repeatedly."""
        if self._usage_monitor is not None:
            self._usage_monitor.stop()
        self._kill()
        self.input.close()
        for transport in self._readers:
            transport.close()
        release, self._release = self._release, None
        if release is not None:
            release()
        process = self._process
        if not isinstance(process, subprocess.Popen):
            process.close()
        elif self._code is None:
            # The process must be reaped whenever it ends.
            threading.Thread(target=process.wait, daemon=True).start()

    def _kill(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._tree.kind == "plain":
            # The process group outlives its leader if there are children.
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        # A supervisor must stay alive to end the others: it alone knows every descendant.
        if self._tree.kind != "supervisor" and self._code is None and isinstance(self._process, subprocess.Popen):
            if self._tree.kind == "namespace":
                kill_launcher(self.pid)
            self._process.kill()

    async def wait_ended(self, limit_s: float) -> bool:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while self._code is None and loop.time() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return self._code is not None


class PipeInlet:
    """The write end of a server's standard input."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle = handle

    async def write(self, data: bytes) -> None:
        """Write all data as fast as the server reads. Raises OSError if the pipe is closed."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._handle, rest) :]
            except BlockingIOError:
                await self._wait_room()

    async def _wait_room(self) -> None:
        loop, room = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._handle, room.set)
        try:
            await room.wait()
        finally:
            loop.remove_writer(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_writer(self._handle)
            os.close(self._handle)
            self._handle = -1


def _confine(confinement: Confinement, argv: list[str], cwd: str, env: Mapping[str, str]) -> Launch:
    """Wrap the program in a sandbox; scripts on its command line are readable there."""
    visible = [word for word in argv if os.path.isabs(word) and os.path.isfile(word)]
    launch = confinement.wrap(argv, env, cwd, visible=visible)
    # The server gets all variables of its entry; the sandbox would only pass those allowed for commands.
    return replace(launch, env={**env, **launch.env})


def _spawn(command: ProcessCommand, tree: Tree, stdio: Stdio) -> "subprocess.Popen[bytes] | Spawned":
    if command.spawner is not None:
        return command.spawner.spawn(Launch(command.argv, command.env, command.cwd, command.pass_fds), stdio)

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            tree.wrap(command.argv, command.cwd, stdio.lifeline),
            stdin=stdio.input,
            stdout=stdio.output,
            stderr=stdio.error,
            cwd=command.cwd,
            env=dict(command.env),
            start_new_session=True,
            pass_fds=(*command.pass_fds, *((stdio.lifeline,) if tree.needs_lifeline else ())),
        )

    return start() if command.spawn_thread is None else command.spawn_thread.run(start)


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

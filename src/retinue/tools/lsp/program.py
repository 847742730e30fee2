"""Runs a language server as a process: its input, its error output, and a guaranteed end of its process tree.

Must not know the protocol.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from retinue.core.environment import WRITING, select
from retinue.core.launch import Confinement
from retinue.sandbox.profile import is_below
from retinue.tools.process import Exit, ProcessCommand, run_process, to_command
from retinue.tools.process_tree import Tree, TreeProbe
from retinue.tools.truncate import render_size

MAX_UNREAD = 64 * 1024 * 1024
"""How many bytes may wait for a server that does not read."""
MAX_COMPLAINT = 4000


@dataclass(frozen=True, slots=True)
class Start:
    """What is needed to start one server."""

    argv: Sequence[str]
    root: str
    environment: Mapping[str, str]
    confinement: Confinement | None
    """The sandbox it runs in; None: no sandbox."""
    trees: TreeProbe
    python: str = ""
    """The folder of the project's environment, for a Python server."""


def choose_environment(inherited: Mapping[str, str], workspace: str) -> dict[str, str]:
    """Build a server's environment: no keys, and nothing of the workspace on PATH."""
    kept = select(inherited, WRITING)
    folders = [folder for folder in kept.get("PATH", os.defpath).split(os.pathsep) if is_outside(folder, workspace)]
    return {**kept, "PATH": os.pathsep.join(folders)}


def is_outside(path: str, workspace: str) -> bool:
    """Whether a path is absolute and, with links followed, not in the workspace."""
    return os.path.isabs(path) and not is_below(os.path.realpath(path), (workspace,))


class ServerProgram:
    """The process of a server."""

    def __init__(self, start: Start, on_output: Callable[[bytes], bool]) -> None:
        self._start = start
        self._on_output = on_output
        self._input: _PipeWriter | None = None
        self._complaint = b""

    async def run(self) -> str:
        """Run to the end and return how it ended. Cancellation kills the process and its descendants."""
        with ExitStack() as held:
            theirs, ours = os.pipe()
            self._input = _PipeWriter(ours)
            held.callback(self._input.close)
            try:
                command = await self._prepare(held, theirs)
                async with asyncio.TaskGroup() as group:
                    work = group.create_task(self._run(*command))
                    # The process now has its copy of the read end; we must close ours to notice when it exits.
                    await asyncio.sleep(0)
                    os.close(theirs)
                    theirs = -1
                return work.result()
            finally:
                if theirs >= 0:
                    os.close(theirs)

    def write(self, data: bytes) -> None:
        """Send data without waiting. Never fails: the end of the server is reported by `run`."""
        if self._input is not None:
            self._input.write(data)

    def hang_up(self) -> None:
        """Close the server's input."""
        if self._input is not None:
            self._input.close()

    async def _prepare(self, held: ExitStack, stdin: int) -> tuple[ProcessCommand, Tree]:
        start = self._start
        if start.confinement is None:
            return ProcessCommand(start.argv, start.root, start.environment, stdin=stdin), await start.trees.find()
        # A project's environment may be a link to anywhere, so only an environment outside the project is made visible.
        own = start.python if not is_below(start.python, (start.root,)) else ""
        visible = (os.path.dirname(start.argv[0]), start.root, *filter(None, (own,)))
        launch = start.confinement.wrap(start.argv, start.environment, start.root, visible=visible)
        return to_command(held.enter_context(launch), stdin=stdin)

    async def _run(self, command: ProcessCommand, tree: Tree) -> str:
        try:
            ended = await run_process(command, on_output=self._on_output, on_error=self._note, tree=tree)
        except OSError as error:
            return f"it cannot be started: {error.strerror or error}"
        return self._describe(ended)

    def _note(self, data: bytes) -> None:
        self._complaint = (self._complaint + data)[-MAX_COMPLAINT:]

    def _describe(self, ended: Exit) -> str:
        text = self._complaint.decode("utf-8", "replace").strip()
        last = "".join(char if char.isprintable() else " " for char in text.rpartition("\n")[2])[:300].strip()
        if ended.bloated:
            return f"the sandbox killed it: it used more than {render_size(ended.bloated)} of memory"
        how = f"it was killed by {ended.signal_name}" if ended.signal_name else f"it exited with status {ended.code}"
        return f"{how}: {last}" if last else how


class _PipeWriter:
    """The writing end of a pipe; never blocks."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        if self._handle < 0:
            return
        self._waiting += data
        if len(self._waiting) > MAX_UNREAD:
            self.close()
        elif len(self._waiting) == len(data):
            self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._handle, self._waiting)]
        except BlockingIOError:
            self._loop.add_writer(self._handle, self._flush)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            with suppress(RuntimeError):
                self._loop.remove_writer(self._handle)
            os.close(self._handle)
            self._handle = -1

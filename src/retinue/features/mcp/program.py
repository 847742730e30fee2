"""A server as a process: its pipes, the last of what it complains about, and a certain end to it and all it starts.

Knows nothing of the protocol.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from retinue.core.errors import quote
from retinue.features.mcp.listing import clean_text
from retinue.features.mcp.server import McpServer
from retinue.features.mcp.trouble import McpFailed
from retinue.tools.trees import Tree, TreeProbe, kill_processes, list_descendants

MAX_MESSAGE = 10 * 1024 * 1024
"""Bytes of one line: room for an image, none for a flood."""
MAX_COMPLAINT = 4_000
GRACE_S = 0.3
"""Between the polite end of the input, SIGTERM and SIGKILL."""
REAP_S = 0.5
_POLL_S = 0.01
# No keys, no tokens: what a program needs to find itself and its words.
_HARMLESS = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


def choose_environment(inherited: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """What a server may see: a few harmless variables and those that its entry names."""
    kept = {name: value for name, value in inherited.items() if name in _HARMLESS or name.startswith("LC_")}
    return {**kept, **configured}


def find_command(server: McpServer, command: str, cwd: Path, path: str) -> str:
    """The program to start. Raises McpFailed.

    A bare name is looked for outside the working directory only: a clone may bring its own `npx`. A relative path is a
    project's own business, so only a project's entry may have one.
    """
    if os.sep in command:
        if not os.path.isabs(command) and server.level != "project":
            raise McpFailed(f"its command {quote(command)} is a relative path; give an absolute one")
        found = os.path.join(cwd, command)
        if not os.access(found, os.X_OK) or os.path.isdir(found):
            raise McpFailed(f"its command {quote(command, 200)} is no program")
        return found
    folders = [
        folder for folder in path.split(os.pathsep) if os.path.isabs(folder) and not Path(folder).is_relative_to(cwd)
    ]
    program = shutil.which(command, path=os.pathsep.join(folders))
    if program is None:
        raise McpFailed(f"its command {quote(command)} is not found in PATH")
    return program


class Program:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, tree: Tree, lifeline: int) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process = process
        self._tree = tree
        self._lifeline = lifeline
        self._complaint = b""
        self.input = process.stdin
        self.output = process.stdout
        self._errors = process.stderr

    @classmethod
    async def start(cls, argv: list[str], cwd: str, env: Mapping[str, str], trees: TreeProbe) -> Self:
        """Start it in a tree of its own. Raises McpFailed."""
        tree = await trees.find()
        held, lifeline = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *tree.wrap(argv, cwd, held),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=cwd,
                env=dict(env),
                limit=MAX_MESSAGE,
                start_new_session=True,
                pass_fds=(held,) if tree.needs_lifeline else (),
            )
        except BaseException as error:
            os.close(lifeline)
            if isinstance(error, OSError | ValueError):
                raise McpFailed(f"it cannot be started: {getattr(error, 'strerror', None) or error}") from error
            raise
        finally:
            os.close(held)
        return cls(process, tree, lifeline)

    @property
    def pid(self) -> int:
        """Of what was started."""
        return self._process.pid

    async def read_complaints(self) -> None:
        """Take what it writes to its error output, however much, and keep the end."""
        with suppress(OSError):
            while piece := await self._errors.read(65_536):
                self._complaint = (self._complaint + piece)[-MAX_COMPLAINT:]

    def describe_end(self) -> str:
        """Why it is gone, as far as it says."""
        code = self._process.returncode
        text = clean_text(self._complaint.decode("utf-8", "replace").strip(), MAX_COMPLAINT)
        last = text.rpartition("\n")[2].strip()
        how = "it closed its output" if code is None else f"it was ended by {_name_signal(-code)}"
        if code is not None and code >= 0:
            how = f"it exited with status {code}"
        return f"{how}: {last[:300]}" if last else how

    async def stop(self) -> None:
        """End it and all it has started; asked first, but not for long."""
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
        """End it without waiting, and let go of its pipes; may be done more than once."""
        self._kill()
        # Nothing public closes the pipes of a process that a survivor still holds.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            with suppress(PermissionError):
                transport.close()

    def _kill(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._tree.kind == "plain":
            # Its group outlives it when it has left children behind.
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        # A supervisor must live to end the others: it alone sees every descendant.
        if self._tree.kind != "supervisor" and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def wait_ended(self, limit_s: float) -> bool:
        """Whether it has ended within the limit."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        # Asyncio's own wait also waits for whoever else holds the pipes.
        while self._process.returncode is None and loop.time() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return self._process.returncode is not None


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

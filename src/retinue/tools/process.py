"""Runs one process with a deadline and bounded memory, and guarantees that it ends.

Children are waited for with a pidfd and their output is read directly from the pipe, so that a hundred of them need no
threads and no stream objects.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from retinue.core.launch import Launch, Spawned, Spawner, SpawnThread, Stdio
from retinue.tools.process_tree import PLAIN, Tree, kill_launcher, kill_processes, list_descendants
from retinue.tools.process_usage import ExceededLimit, UsageBounds, UsageMonitor

READ_SIZE = 128 * 1024
LIFELINE = "RETINUE_LIFELINE"
"""Environment variable with the number of a descriptor; its other end is closed when retinue exits."""
_DRAIN_S = 0.1
_REAP_S = 0.3
_PIPE_SIZE = 512 * 1024


class Exit(Struct, frozen=True):
    code: int
    """Exit status; 128 plus the signal number if a signal ended the process."""
    timed_out: bool = False
    stopped: bool = False
    """Killed because the reader of its output asked to stop."""
    unkillable: bool = False
    """It did not die in time and is no longer waited for."""
    exceeded_processes: int = 0
    """If not 0: killed because it had more processes and threads than this."""
    exceeded_memory: int = 0
    """If not 0: killed because it used more bytes of memory than this."""

    @property
    def signal_name(self) -> str:
        """The name of the signal if the status is above 128, else an empty string."""
        try:
            return signal.Signals(self.code - 128).name if self.code > 128 else ""
        except ValueError:
            return ""


class ProcessCommand(Struct, frozen=True):
    """A command line with its working directory, environment and descriptors."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    stdin: int = subprocess.DEVNULL
    """A descriptor to read from; the caller keeps ownership."""
    spawner: Spawner | None = None
    """Starts the process, if it cannot be a child of ours."""
    bounds: UsageBounds = UsageBounds()
    spawn_thread: SpawnThread | None = None
    """If set, the process is started in this thread."""
    tells_end: bool = False
    """Whether a callback gets no bytes when its output is closed."""


def to_command(launch: Launch, *, stdin: int = subprocess.DEVNULL, max_tasks: int = 0) -> tuple[ProcessCommand, Tree]:
    """Convert a launch to a command and its tree; the sandbox boundary keeps the tree together."""
    tree = Tree("namespace" if launch.spawner is None else "supervisor", skip=launch.layers)
    bounds = UsageBounds(max_tasks, launch.max_memory)
    return ProcessCommand(
        launch.argv, launch.cwd, launch.env, launch.pass_fds, stdin, launch.spawner, bounds, launch.spawn_thread
    ), tree


async def run_process(
    command: ProcessCommand,
    *,
    on_output: Callable[[bytes], bool | None],
    on_error: Callable[[bytes], bool | None] | None = None,
    timeout_s: float | None = None,
    grace_s: float = 1.0,
    tree: Tree = PLAIN,
    read_size: int = READ_SIZE,
    find_grace_s: Callable[[], float] | None = None,
) -> Exit:
    """Run a program to its end and pass on its output as it arrives.

    A callback gets at most `read_size` bytes and MUST NOT raise; if it returns True, the process is killed. Without
    `on_error`, both outputs are mixed in order. At the deadline the whole tree gets SIGTERM, then SIGKILL after
    `grace_s`. On cancellation it gets SIGKILL at once, or after the number of seconds that `find_grace_s` returns.
    Other processes that merely hold the pipe open are never waited for. Raises OSError if the program cannot be
    started.
    """
    child = _Child(tree, read_size)
    child.start(command, on_output, on_error)
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await child.ended.wait()
        except TimeoutError:
            timed_out = True
            await child.terminate(grace_s)
        if not child.stopped:
            # In a namespace, other holders of the pipe are being killed; the command's output is already in it.
            await child.drain(0 if tree.kind == "namespace" else _DRAIN_S)
    except asyncio.CancelledError:
        # The caller must return within 500 ms: no SIGTERM unless it asks for one, and a bounded wait for the exit.
        try:
            if find_grace_s is not None:
                await child.terminate(find_grace_s())
        finally:
            child.kill()
            await child.wait_ended(_REAP_S)
            await child.drain(0)  # what it printed last
        raise
    finally:
        child.close()
    if child.failure is not None:
        raise child.failure
    status = child.status
    code = 137 if status is None else (128 - status if status < 0 else status)
    return Exit(code, timed_out, child.stopped, status is None, child.excess.tasks, child.excess.memory)


class _Child:
    """A started process with its pipes."""

    def __init__(self, tree: Tree, read_size: int) -> None:
        self.tree = tree
        self._read_size = read_size
        self._tells_end = False
        self.ended = asyncio.Event()
        self.stopped = False
        self.status: int | None = None
        self.failure: OSError | None = None
        self.excess = ExceededLimit()
        self._usage_monitor: UsageMonitor | None = None
        self._process: subprocess.Popen[bytes] | Spawned
        self._loop = asyncio.get_running_loop()
        self._drained = asyncio.Event()
        self._readers: dict[int, Callable[[bytes], bool | None]] = {}
        self._pidfd = -1
        self._lifeline = -1

    def start(
        self,
        command: ProcessCommand,
        on_output: Callable[[bytes], bool | None],
        on_error: Callable[[bytes], bool | None] | None,
    ) -> None:
        """Start the program in its own session, without a terminal and with the given stdin."""
        theirs: list[int] = []
        self._tells_end = command.tells_end
        pass_fds, env = command.pass_fds, command.env
        try:
            out = self._open_pipe(theirs, on_output)
            err = out if on_error is None else self._open_pipe(theirs, on_error)
            if self.tree.needs_lifeline:
                held, self._lifeline = os.pipe()
                theirs.append(held)
            if command.spawner is not None:
                launch = Launch(command.argv, env, command.cwd, pass_fds)
                self._process = command.spawner.spawn(launch, Stdio(out, err, theirs[-1], command.stdin))
            else:
                if self.tree.needs_lifeline:
                    pass_fds, env = (*pass_fds, theirs[-1]), {**env, LIFELINE: str(theirs[-1])}
                argv = self.tree.wrap(command.argv, command.cwd, theirs[-1])

                def start() -> subprocess.Popen[bytes]:
                    return subprocess.Popen(
                        argv,
                        stdin=command.stdin,
                        stdout=out,
                        stderr=err,
                        cwd=command.cwd,
                        env=env,
                        start_new_session=True,
                        pass_fds=pass_fds,
                    )

                self._process = start() if command.spawn_thread is None else command.spawn_thread.run(start)
        except BaseException:
            self.close()
            raise
        finally:
            for each in theirs:
                os.close(each)
        self._watch_end()
        if command.bounds:
            self._usage_monitor = UsageMonitor(
                lambda: self._process.pid, self.tree.kind, command.bounds, self._end_excess
            )

    def _end_excess(self, excess: ExceededLimit) -> None:
        """Kill a tree that exceeds its limits; kernel limits do not hold for root, or for the sum of all processes."""
        if not self.ended.is_set():
            self.excess = excess
            self.kill()

    def _open_pipe(self, theirs: list[int], handle: Callable[[bytes], bool | None]) -> int:
        ours, end = os.pipe()
        theirs.append(end)
        os.set_blocking(ours, False)
        if sys.platform == "linux":
            import fcntl

            # Fewer and larger reads. The kernel may refuse this to a user with many pipes, which is harmless.
            with suppress(OSError):
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self._readers[ours] = handle
        self._loop.add_reader(ours, self._read, ours, handle)
        return end

    def _read(self, source: int, handle: Callable[[bytes], bool | None]) -> None:
        try:
            data = os.read(source, self._read_size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_reader(source)
            if self._tells_end:
                handle(data)
            return
        if self.stopped:
            return
        enough: bool | None = True
        try:
            enough = handle(data)
        finally:
            # Also if the callback raised in spite of the contract: a process whose output is not read would never end.
            if enough:
                self.stopped = True
                self.kill()

    def _close_reader(self, source: int) -> None:
        self._loop.remove_reader(source)
        os.close(source)
        del self._readers[source]
        if not self._readers:
            self._drained.set()

    def _watch_end(self) -> None:
        if not isinstance(self._process, subprocess.Popen):
            self._loop.add_reader(self._process.fileno(), self._on_word)
            return
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(self._process.pid)
            except OSError:
                self._pidfd = -1
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._on_end)
            return
        threading.Thread(target=self._wait_in_thread, daemon=True).start()

    def _wait_in_thread(self) -> None:
        assert isinstance(self._process, subprocess.Popen)
        self._process.wait()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_end)

    def _on_word(self) -> None:
        """Handle a message about a process that a spawner started; most often it has ended."""
        assert not isinstance(self._process, subprocess.Popen)
        try:
            self.status = self._process.poll()
        except OSError as error:
            self.failure = error
        if self.status is not None or self.failure is not None:
            self._loop.remove_reader(self._process.fileno())
            self._process.close()
            self.ended.set()

    def _on_end(self) -> None:
        assert isinstance(self._process, subprocess.Popen)
        self.status = self._process.poll()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self.ended.set()

    def kill(self) -> None:
        self._cut_lifeline()
        # The supervisor must stay alive to kill the others: only it sees every descendant.
        if self.tree.kind != "supervisor" and not self.ended.is_set():
            self._kill_first()
        if self.tree.kind == "plain" and not self.ended.is_set():
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def terminate(self, grace_s: float) -> None:
        """Send SIGTERM to the tree, then SIGKILL; returns in bounded time even if a process cannot die."""
        pids = self.tree.select(list_descendants(self._process.pid))
        kill_processes(pids, signal.SIGTERM)
        kill_processes(pids, signal.SIGCONT)
        if self.tree.kind == "plain" and isinstance(self._process, subprocess.Popen):
            self._process.terminate()
        if await self.wait_ended(grace_s):
            return
        self.kill()
        if await self.wait_ended(_REAP_S):
            return
        kill_processes(list_descendants(self._process.pid), signal.SIGKILL)
        self._kill_first()
        await self.wait_ended(_REAP_S)

    def _kill_first(self) -> None:
        if isinstance(self._process, subprocess.Popen):
            if self.tree.kind == "namespace":
                kill_launcher(self._process.pid)
            self._process.kill()
        elif pid := self._process.pid:
            kill_processes([pid], signal.SIGKILL)

    async def wait_ended(self, limit_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.ended.wait()
        return self.ended.is_set()

    async def drain(self, limit_s: float) -> None:
        """Read what is left in the pipes, without waiting for other processes that hold them open."""
        if limit_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._drained.wait()
        # On a busy event loop the timeout may pass before the first read, so read what the pipes hold now.
        for source, handle in tuple(self._readers.items()):
            for _ in range(_PIPE_SIZE // self._read_size + 1):
                if source in self._readers:
                    self._read(source, handle)

    def close(self) -> None:
        """Close the pipes; a process that could not be killed is still reaped when it ends."""
        for source in tuple(self._readers):
            self._close_reader(source)
        self._cut_lifeline()
        if self._usage_monitor is not None:
            self._usage_monitor.stop()
        process = getattr(self, "_process", None)
        if process is None or self.ended.is_set():
            return
        if not isinstance(process, subprocess.Popen):
            self._loop.remove_reader(process.fileno())
            process.close()
        elif self._pidfd >= 0:
            # The event loop may end before the process does.
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            threading.Thread(target=self._wait_in_thread, daemon=True).start()

    def _cut_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

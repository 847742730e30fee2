"""Client of the fork server: starts it, sends it commands and receives their exit status."""

import array
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from retinue.core.launch import Launch, Stdio
from retinue.sandbox import landlock
from retinue.sandbox.cgroup import ControlGroup
from retinue.sandbox.landlock import LandlockPlan

Started = TypeVar("Started")


class RestrictedThread:
    """A restricted thread from which commands are started. It must stay alive: the children die with their thread."""

    def __init__(self, enter: Callable[[], None]) -> None:
        """`enter` restricts the thread that calls it, and raises OSError if it cannot."""
        self._enter_limits = enter
        self._thread: ThreadPoolExecutor | None = None
        self._failure: OSError | None = None

    def run(self, start: Callable[[], Started]) -> Started:
        """Call `start` in the thread. Raises OSError without calling it if the thread could not be restricted."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "retinue-spawn", initializer=self._enter)
        return self._thread.submit(self._start, start).result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _enter(self) -> None:
        try:
            self._enter_limits()
        except OSError as error:
            self._failure = error

    def _start(self, start: Callable[[], Started]) -> Started:
        if self._failure is not None:
            raise self._failure
        return start()


def limit_thread(control_group: ControlGroup, *, scoped: bool) -> None:
    """Limit the commands that this thread starts. Raises OSError."""
    control_group.enter(threading.get_native_id())
    if scoped:
        landlock.leave_sockets()


PROGRAM = Path(__file__).with_name("forkserver.py")
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3")
_END_S = 2.0


class ForkServer:
    """One fork server, started on first use and restarted if it was killed."""

    def __init__(self, command: Sequence[str] = (), control_group: ControlGroup | None = None) -> None:
        """`command` replaces the command line that starts the server, without its last argument."""
        self._command = tuple(command)
        self.control_group = control_group or ControlGroup()
        """Limits the commands of root."""
        self._threads: dict[bool, RestrictedThread] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def find_thread(self, *, scoped: bool) -> RestrictedThread:
        """Return the thread that starts commands which need no fork server."""
        with self._lock:
            limit = partial(limit_thread, self.control_group, scoped=scoped)
            return self._threads.setdefault(scoped, RestrictedThread(limit))

    def send(self, order: bytes, handles: Sequence[int]) -> None:
        """Send one order with its descriptors. Raises OSError if the server cannot be started or reached."""
        with self._lock:
            control = self._reach()
            payload = os.memfd_create("order", os.MFD_CLOEXEC)
            try:
                with open(payload, "wb", closefd=False) as file:
                    file.write(order)
                os.lseek(payload, 0, os.SEEK_SET)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [payload, *handles]))
                control.sendmsg([b"x"], [rights])
            finally:
                os.close(payload)

    def close(self) -> None:
        """End the server; commands that still run have their own lifelines."""
        with self._lock:
            self._drop()
            for spawn_thread in self._threads.values():
                spawn_thread.close()
            self._threads.clear()
            self.control_group.close()

    def _reach(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._drop()
        if self._control is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._process = subprocess.Popen(
                    [*(self._command or (find_python(), "-I", "-S", str(PROGRAM))), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    # Commands of the same user may read this environment.
                    env={"PATH": "/usr/bin:/bin"},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
            finally:
                theirs.close()
            self._control = ours
            self.control_group.admit(self._process.pid)
        return self._control

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None


class ServerSpawner:
    def __init__(
        self,
        server: ForkServer,
        plan: LandlockPlan | None = None,
        program: bytes = b"",
        limits: Mapping[str, int] | None = None,
        *,
        scoped: bool = False,
    ) -> None:
        """Without a plan the command confines itself; `scoped` cuts it off from abstract sockets."""
        self._server = server
        self._plan = plan
        self._program = program
        self._limits = limits or {}
        self._scoped = scoped

    def spawn(self, launch: Launch, stdio: Stdio) -> "ForkedProcess":
        order: dict[str, Any] = {
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "fds": list(launch.pass_fds),
            "plan": self._plan,
            "filter": self._program.hex(),
            "limits": dict(self._limits),
            "scoped": self._scoped,
        }
        status, theirs = os.pipe()
        try:
            with open(os.devnull, "rb") as null:
                source = stdio.input if stdio.input >= 0 else null.fileno()
                handles = [source, stdio.output, stdio.error, stdio.lifeline, theirs, *launch.pass_fds]
                self._server.send(msgspec.json.encode(order), handles)
        except (OSError, UnicodeEncodeError) as error:
            os.close(status)
            raise OSError(f"the fork server does not answer: {error}") from error
        finally:
            os.close(theirs)
        os.set_blocking(status, False)
        return ForkedProcess(status)


class ForkedProcess:
    """A command started by the fork server."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._heard = b""
        self._ended: int | None = None
        self._failure = ""
        self._pid = 0

    @property
    def pid(self) -> int:
        """The pid of the process that supervises the command."""
        self._hear()
        return self._pid

    def fileno(self) -> int:
        return self._status

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; -9 if its supervising process was killed. Raises OSError."""
        self._hear()
        if self._failure:
            raise OSError(self._failure)
        return self._ended

    def close(self) -> None:
        if self._status >= 0:
            os.close(self._status)
            self._status = -1

    def _hear(self) -> None:
        while self._ended is None and self._status >= 0:
            try:
                data = os.read(self._status, 4096)
            except BlockingIOError:
                return
            if not data:
                self._ended = -9
            self._heard += data
            *lines, self._heard = self._heard.split(b"\n")
            for line in lines:
                word, _, rest = line.partition(b" ")
                with suppress(ValueError):
                    if word == b"pid":
                        self._pid = int(rest)
                    elif word == b"exit":
                        self._ended = int(rest)
                if word == b"error":
                    self._failure = rest.decode("utf-8", "replace").strip()


def find_python() -> str:
    """Return our own Python, or the system's if ours is not executable after a change of user."""
    own = sys.executable or ""
    return next((path for path in (own, *SYSTEM_PYTHONS) if path and os.access(path, os.X_OK)), own)

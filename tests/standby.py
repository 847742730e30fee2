"""Programs that tests start are forks of a process that stands by with everything imported.

The same program from its first line to its last, in a process of its own, but for the imports: most of what a short one
does. What looks at the start itself is marked `fresh` and started as a user does; so is all with `STANDBY=0`, and
whatever tells the interpreter something by its environment.
"""

import atexit
import faulthandler
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from retinue.testing.process import KEPT
from tests.terminal import start_there

TOP = Path(__file__).parents[1]
PROGRAM = [sys.executable, "-m", "retinue"]
HEAVY = ("aiohttp", "dbos", "mcp.client.stdio", "mcp.client.streamable_http", "mcp.server.lowlevel", "psycopg")
_TOLD = ("PYTHON", "LC_", "LD_")
"""What an interpreter looks at when it starts, and a fork does not; and so is LANG."""
_PLAIN = "C.UTF-8"


class Forked:
    """A program that was forked, as far as tests need what Popen has."""

    def __init__(self, connection: socket.socket, pid: int, pipes: Sequence[IO[bytes] | None]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = pipes
        self._connection = connection

    def poll(self) -> int | None:
        """How it has ended, negative for a signal; None while it works."""
        with suppress(BlockingIOError):
            self._take(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        try:
            return self._take(timeout)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0) from None

    def communicate(self, data: bytes | None = None, timeout: float = 60) -> tuple[bytes, bytes]:
        """Say this, take all it says, and wait for its end. Raises TimeoutExpired."""
        said = {pipe: b"" for pipe in (self.stdout, self.stderr) if pipe is not None}

        def tell() -> None:
            if self.stdin is not None:
                with suppress(BrokenPipeError):
                    self.stdin.write(data or b"")
                with suppress(BrokenPipeError):
                    self.stdin.close()

        def hear(pipe: IO[bytes]) -> None:
            said[pipe] = pipe.read()

        deadline_s = time.monotonic() + timeout
        threads = [threading.Thread(target=hear, args=(pipe,), daemon=True) for pipe in said]
        threads.append(threading.Thread(target=tell, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0, deadline_s - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            raise subprocess.TimeoutExpired(PROGRAM, timeout)
        self.wait(max(0.01, deadline_s - time.monotonic()))
        return said.get(self.stdout, b""), said.get(self.stderr, b"")  # type: ignore[arg-type]

    def send_signal(self, number: int) -> None:
        """Signal it while it works."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # as subprocess does: it may have ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by force."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in (self.stdout, self.stderr, self.stdin):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.wait()

    def _take(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            (self.returncode,) = struct.unpack("i", self._connection.recv(4))
            self._connection.close()
        return self.returncode


class Standby:
    """The process that stands by, as tests see it; it comes with the first program that is wanted."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._told = _find_told({name: os.environ[name] for name in KEPT if name in os.environ})

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | None = None,
    ) -> Any:
        """What Popen does."""
        if not self._is_playable(command, env):
            return subprocess.Popen(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        pipes, theirs, closed = _open_pipes((stdin, stdout, stderr))
        try:
            return self._fork(pipes, theirs, command, cwd, env)
        finally:
            for number in closed:
                os.close(number)

    def start_there(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], terminal: str) -> Any:
        """The same as the leader of a session in this terminal."""
        if not self._is_playable(command, env):
            return start_there(command, cwd, env, terminal)
        return self._fork((None, None, None), (), command, cwd, env, terminal)

    def _fork(
        self,
        pipes: Sequence[IO[bytes] | None],
        theirs: Sequence[int],
        command: Sequence[str],
        cwd: str | Path,
        env: Mapping[str, str],
        terminal: str = "",
    ) -> Forked:
        ours, reply = socket.socketpair()
        words = [os.fsdecode(word) for word in command[len(PROGRAM) :]]
        wish = {"words": words, "folder": str(cwd), "environment": dict(env), "terminal": terminal}
        body = json.dumps(wish).encode()
        with self._lock, reply:
            socket.send_fds(self._control, [struct.pack("q", len(body))], [reply.fileno(), *theirs])
            self._control.sendall(body)
        (pid,) = struct.unpack("i", ours.recv(4))
        return Forked(ours, pid, pipes)

    def close(self) -> None:
        """End it and all that it started."""
        if self._process is not None:
            self._control.close()
            self._process.wait(10)

    def _is_playable(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        if list(command[: len(PROGRAM)]) != PROGRAM:
            return False
        if _find_told(env) != self._told:
            return False
        with self._lock:
            if self._process is None:
                self._control, theirs = socket.socketpair()
                with theirs:
                    words = [sys.executable, "-m", "tests.standby", str(theirs.fileno())]
                    # Nothing else: whoever looks for what a program has left behind looks at environments.
                    own = {"PATH": os.defpath, **self._told}
                    self._process = subprocess.Popen(
                        words, cwd=TOP, env=own, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                    )
        return True


def _find_told(env: Mapping[str, str]) -> dict[str, str]:
    told = {name: value for name, value in env.items() if name.startswith(_TOLD) or name == "LANG"}
    plain = (("LANG", _PLAIN), ("PYTHONFAULTHANDLER", "1"))  # so it is here, too
    return {name: value for name, value in told.items() if (name, value) not in plain}


def _open_pipes(wanted: Sequence[Any]) -> tuple[list[IO[bytes] | None], list[int], list[int]]:
    """Our ends, the program's, and what is to be closed here once it has them."""
    pipes: list[IO[bytes] | None] = []
    theirs: list[int] = []
    closed: list[int] = []
    for number, each in enumerate(wanted):
        pipe: IO[bytes] | None = None
        if each == subprocess.PIPE:
            reader, writer = os.pipe()
            pipe = os.fdopen(writer, "wb") if number == 0 else os.fdopen(reader, "rb")
            theirs.append(reader if number == 0 else writer)
            closed.append(theirs[-1])
        elif each == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
            closed.append(theirs[-1])
        else:
            theirs.append(number if each is None else each if isinstance(each, int) else each.fileno())
        pipes.append(pipe)
    return pipes, theirs, closed


@contextmanager
def open_standby() -> Iterator[Standby]:
    """A process that may stand by; ends with this."""
    standby = Standby()
    try:
        yield standby
    finally:
        standby.close()


class Stand:
    """That process itself."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._programs: dict[int, tuple[int, socket.socket]] = {}
        """For each that works: the descriptor that tells of its end, its id, and who is to know."""

    def serve(self) -> None:
        """Fork whenever that is wished for; returns in the fork, where all is as if a program had just begun."""
        while True:
            ready = select.select([self._control, *self._programs], [], [])[0]
            for number in ready:
                if isinstance(number, int):
                    self._tell_end(number)
            if self._control in ready:
                head, numbers, _, _ = socket.recv_fds(self._control, 8, 4)
                if not head:
                    self._end_all()
                wish = json.loads(_read(self._control, struct.unpack("q", head)[0]))
                if self._fork(wish, numbers):
                    return

    def _fork(self, wish: dict[str, Any], numbers: Sequence[int]) -> bool:
        reply = socket.socket(fileno=numbers[0])
        pid = os.fork()
        if pid == 0:
            for watch, (_, other) in self._programs.items():
                os.close(watch)
                other.close()
            self._control.close()
            reply.close()
            _become(wish, numbers[1:])
            return True
        for number in numbers[1:]:
            os.close(number)
        self._programs[os.pidfd_open(pid)] = (pid, reply)
        reply.sendall(struct.pack("i", pid))
        return False

    def _tell_end(self, watch: int) -> None:
        pid, reply = self._programs.pop(watch)
        os.close(watch)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with reply, suppress(OSError):  # whoever wanted it may have gone
            reply.sendall(struct.pack("i", status))

    def _end_all(self) -> None:
        for pid, _ in self._programs.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def _become(wish: dict[str, Any], numbers: Sequence[int]) -> None:
    """Be where `python -m retinue` is when its first line runs."""
    coerced = os.environ.get("LC_CTYPE")
    os.environ.clear()
    os.environ.update(wish["environment"])
    if coerced is not None and not {"LC_ALL", "LC_CTYPE", "LANG"} & set(os.environ):
        os.environ["LC_CTYPE"] = coerced
    time.tzset()
    if wish["terminal"]:
        os.setsid()
        numbers = [os.open(wish["terminal"], os.O_RDWR)] * 3
    for number, given in enumerate(numbers):
        os.dup2(given, number)
    for given in set(numbers):
        os.close(given)
    os.chdir(wish["folder"])
    sys.path[0] = os.getcwd()
    sys.argv[:] = ["retinue", *wish["words"]]
    _renew_streams()


def _renew_streams() -> None:
    sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        old, raw = getattr(sys, name), io.FileIO(number, "w", closefd=False)
        is_quick = number == 2 or raw.isatty()
        new = io.TextIOWrapper(io.BufferedWriter(raw), old.encoding, old.errors, line_buffering=is_quick)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    sys.__stdin__ = sys.stdin  # type: ignore[misc]


def _import_all() -> None:
    import retinue

    for found in pkgutil.walk_packages(retinue.__path__, "retinue."):
        # Programs of their own: their first line is their last.
        if not found.name.endswith(".__main__") and not found.name.startswith("retinue.testing"):
            importlib.import_module(found.name)
    for name in HEAVY:
        importlib.import_module(name)


def main() -> None:
    """Stand by, and be the program in each fork."""
    faulthandler.enable()  # as in each program that a test starts
    stand = Stand(socket.socket(fileno=int(sys.argv[1])))
    _import_all()
    gc.collect()
    gc.freeze()
    stand.serve()
    try:
        runpy.run_module("retinue", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _end(end.code)
        raise


def _end(status: int) -> None:
    """What an interpreter does at its end, but for taking apart all that was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):  # then it goes on as any other program that cannot say its last words
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    main()

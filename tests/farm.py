"""Workers for tests that know nothing of them, `pytest --runner cluster`, and quick ones for those that do.

One process stands by with everything imported. The first run that a test sends makes a database and a worker, a fork of
that process with the environment of whoever sent it; both are gone when the test is. Programs that a test starts itself
are forks, too: the same program from its first line on, but for the second that its imports take.
"""

import asyncio
import faulthandler
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WAIT_LIMIT_S = 30.0
FOLDERS = Path(__file__).parents[1] / ".cache" / "farm"
"""Of workers: not below /tmp, where sandboxes hide what the git of a run reads."""


class Farm:
    """The workers of one test, as whoever needs them sees them."""

    def __init__(self, yard: str, database: str) -> None:
        self.yard = yard
        self.database = database

    def want(self) -> None:
        """Have a worker, from the first time on."""
        self._ask({"verb": "want", "environment": dict(os.environ), "folder": os.getcwd()})

    def end(self) -> None:
        """Let the worker and its database be gone."""
        self._ask({"verb": "end"})

    def _ask(self, wish: dict[str, Any]) -> None:
        ask_yard(self.yard, {"database": self.database, **wish})


class Forked:
    """A program that the yard has started, as far as tests need what Popen has."""

    def __init__(self, yard: str, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._yard = yard

    def poll(self) -> int | None:
        """How it has ended; None while it works."""
        if self.returncode is None:
            self.returncode = ask_yard(self._yard, {"verb": "look", "pid": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        deadline_s = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.02)
        return status

    def send_signal(self, number: int) -> None:
        """Signal it while it works."""
        if self.poll() is None:
            os.kill(self.pid, number)


def fork_program(yard: str, words: list[str], environment: dict[str, str], folder: Path, said: Path) -> Any:
    """The program with these words; what it says goes to a file."""
    said.touch()
    wish = {"verb": "run", "words": words, "environment": environment, "folder": str(folder), "said": str(said)}
    return Forked(yard, ask_yard(yard, wish))


def ask_yard(yard: str, wish: dict[str, Any]) -> Any:
    """What comes of a wish."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_LIMIT_S)
        connection.connect(yard)
        connection.sendall(json.dumps(wish).encode() + b"\n")
        answer = connection.makefile().readline()
    if not answer:
        raise RuntimeError(f"the yard cannot {wish['verb']}: see its log beside {yard}")
    return json.loads(answer)


@contextmanager
def open_yard(root: Path, prepared: str) -> Iterator[str]:
    """The process that stands by; yields its address. `prepared` is a database to be copied."""
    yard = root / "yard"
    with (root / "yard.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.farm", str(yard), prepared],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError((root / "yard.log").read_text())
            yield str(yard)
        finally:
            process.terminate()


class Yard:
    """That process: forks workers and ends them."""

    def __init__(self, path: str, prepared: str) -> None:
        self._path = path
        self._prepared = prepared
        self._workers: dict[str, int] = {}
        self._programs: dict[int, int | None] = {}
        """How each has ended that was started by its words."""

    def serve(self) -> None:
        """Do what is wished for, one after the other, for as long as those live who have started this."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._path)
            listener.listen(64)
            print("ready", flush=True)
            while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
                connection, _ = listener.accept()
                # Whoever asked may have been killed meanwhile, as tests do.
                with connection, suppress(OSError, ValueError):
                    wish = json.loads(connection.makefile().readline())
                    answer = getattr(self, f"_{wish['verb']}")(wish, (listener, connection))
                    connection.sendall(json.dumps(answer).encode() + b"\n")

    def _end(self, wish: dict[str, Any], _: Any) -> None:
        self.end(wish["database"])

    def _run(self, wish: dict[str, Any], sockets: tuple[socket.socket, ...]) -> int:
        pid = self._fork(wish, sockets, lambda: _be_program(wish["words"], wish["said"]))
        self._programs[pid] = None
        return pid

    def _look(self, wish: dict[str, Any], _: Any) -> int | None:
        pid = wish["pid"]
        if self._programs[pid] is None:
            done, status = os.waitpid(pid, os.WNOHANG)
            self._programs[pid] = os.waitstatus_to_exitcode(status) if done else None
        return self._programs[pid]

    def end(self, database: str) -> None:
        """End a worker as a power cut would."""
        import psycopg

        pid = self._workers.pop(database, 0)
        if pid:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            with suppress(OSError, psycopg.OperationalError):  # the server may have gone with its starter
                self._do(f"DROP DATABASE {_name(database)} WITH (FORCE)")
            shutil.rmtree(self._find_folder(database), ignore_errors=True)

    def close(self) -> None:
        """End all of them."""
        for database in list(self._workers):
            self.end(database)
        for pid in self._programs:
            if self._look({"pid": pid}, None) is None:
                os.kill(pid, signal.SIGKILL)

    def _want(self, wish: dict[str, Any], sockets: tuple[socket.socket, ...]) -> None:
        database = wish["database"]
        if database in self._workers:
            return
        self._do(f"CREATE DATABASE {_name(database)} TEMPLATE {_name(self._prepared)}")
        wish["environment"]["RETINUE_WORKER_DIR"] = str(self._find_folder(database))
        self._workers[database] = self._fork(wish, sockets, lambda: _be_worker(Farm(self._path, database)))

    def _fork(self, wish: dict[str, Any], sockets: tuple[socket.socket, ...], work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            for each in sockets:
                each.close()
            os.setpgid(0, 0)
            os.environ.clear()
            os.environ.update(wish["environment"])
            os.chdir(wish["folder"])
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                work()
            finally:
                os._exit(1)
        # Here as well: it may have to end before it has come to say so itself.
        with suppress(OSError):
            os.setpgid(pid, pid)
        return pid

    def _find_folder(self, database: str) -> Path:
        return FOLDERS / f"{os.getpid()}-{_name(database)}"

    def _do(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._prepared.rpartition("/")[0] + "/postgres", autocommit=True) as connection:
            connection.execute(statement.encode())


def _name(database: str) -> str:
    return database.rpartition("/")[2]


def _be_worker(farm: Farm) -> None:
    from retinue.app.remote import WorkerOptions, start_worker
    from tests.runners import use_runner

    def say(text: str) -> None:
        print(farm.database, text, file=sys.stderr, flush=True)

    with use_runner("cluster", farm):
        asyncio.run(start_worker(WorkerOptions(database=farm.database, drain_s=0), asyncio.Event(), say))


def _be_program(words: list[str], said: str) -> None:
    """What `python -m retinue` does."""
    nothing, log = os.open(os.devnull, os.O_RDWR), os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, target in enumerate((nothing, nothing, log)):
        os.dup2(target, number)
    sys.argv = ["retinue", *words]
    try:
        runpy.run_module("retinue", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)


def _import_all() -> None:
    """What each worker would else spend a second on."""
    for name in (
        "retinue.app.retinue",
        "retinue.durable.cluster.worker_host",
        "retinue.durable.cluster.worker",
        "dbos",
        "psycopg",
        "aiohttp",
    ):
        importlib.import_module(name)


if __name__ == "__main__":
    faulthandler.enable()  # as in each program that a test starts
    _import_all()
    yard = Yard(*sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yard.serve()
    finally:
        yard.close()

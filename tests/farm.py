"""Workers for tests that know nothing of them: `pytest --runner cluster`.

One process stands by with everything imported. The first run that a test sends makes a database and a worker, a fork of
that process with the environment of whoever sent it; both are gone when the test is.
"""

import asyncio
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 30.0
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
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(self.yard)
            connection.sendall(json.dumps({"database": self.database, **wish}).encode() + b"\n")
            answer = connection.makefile().readline()
        if answer != "ok\n":
            raise RuntimeError(f"the farm has no worker: {answer}")


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
                    if wish["verb"] == "end":
                        self.end(wish["database"])
                    elif wish["database"] not in self._workers:
                        self._start(wish, (listener, connection))
                    connection.sendall(b"ok\n")

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

    def _start(self, wish: dict[str, Any], sockets: tuple[socket.socket, ...]) -> None:
        database = wish["database"]
        self._do(f"CREATE DATABASE {_name(database)} TEMPLATE {_name(self._prepared)}")
        folder = self._find_folder(database)
        pid = os.fork()
        if pid == 0:
            for each in sockets:
                each.close()
            os.setpgid(0, 0)
            os.environ.clear()
            os.environ.update(wish["environment"], RETINUE_WORKER_DIR=str(folder))
            os.chdir(wish["folder"])
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _be_worker(Farm(self._path, database))
        # Here as well: it may have to end before it has come to say so itself.
        with suppress(OSError):
            os.setpgid(pid, pid)
        self._workers[database] = pid

    def _find_folder(self, database: str) -> Path:
        return FOLDERS / f"{os.getpid()}-{_name(database)}"

    def _do(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._prepared.rpartition("/")[0] + "/postgres", autocommit=True) as connection:
            connection.execute(statement.encode())


def _name(database: str) -> str:
    return database.rpartition("/")[2]


def _be_worker(farm: Farm) -> None:
    from retinue.app.working import WorkerWish, work
    from tests.runners import use_runner

    def say(text: str) -> None:
        print(farm.database, text, file=sys.stderr, flush=True)

    try:
        with use_runner("cluster", farm):
            asyncio.run(work(WorkerWish(database=farm.database, drain_s=0), asyncio.Event(), say))
    finally:
        os._exit(1)


def _import_all() -> None:
    """What each worker would else spend a second on."""
    for name in ("retinue.app.hosting", "retinue.durable.worker", "dbos", "psycopg", "aiohttp"):
        importlib.import_module(name)


if __name__ == "__main__":
    _import_all()
    yard = Yard(*sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yard.serve()
    finally:
        yard.close()

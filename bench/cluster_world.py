"""A project whose agents work on workers: real processes, a real Postgres, a mock model server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from retinue import Retinue
from retinue.testing import MockServer, make_repo
from tests.postgres import Postgres, find_postgres, open_postgres

LOG = 'echo "$PI_SESSION_ID {turn}" >> {log}'
"""What a scripted call does: one line for each time it is done, the same one for the same call."""


USAGE = {"input": 1_000, "output": 50}
"""Of each reply, where somebody counts."""


Start = Callable[[list[str], dict[str, str], Path, Path], "subprocess.Popen[str]"]
"""Starts the program with these words and this environment in a folder; what it says goes to a file."""


def start_program(words: list[str], environment: dict[str, str], folder: Path, said: Path) -> "subprocess.Popen[str]":
    """The program, in a session of its own."""
    with said.open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "retinue", *words],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            start_new_session=True,
        )


class ClusterWorld:
    """Where everything is."""

    def __init__(self, database: str, agent_dir: Path, root: Path, *, confined: bool = False) -> None:
        self.database = database
        self.agent_dir = agent_dir
        self.project = make_repo(root / "project", {"README.md": "# A project\n"})
        self.shared = root / "shared"
        """What scripted commands may see and write beside their workspace."""
        self.shared.mkdir()
        self.log = self.shared / "effects.log"
        self.log.touch()
        self._root = root
        self._workers: list[subprocess.Popen[str]] = []
        self.start: Start = start_program
        """Starts the program; somebody may have a quicker way to do that."""
        self._server: Any = None
        self.sandbox: dict[str, Any] = {"writable": ["~/.cache", str(self.shared)]} if confined else {"mode": "off"}
        """The one setting of users and of workers."""
        self.settings: dict[str, Any] = {"runner": "cluster", "sandbox": self.sandbox}

    @classmethod
    @contextmanager
    def open(cls, database: str, agent_dir: Path, root: Path, *, confined: bool = False) -> Iterator["ClusterWorld"]:
        """A world; its workers end with it. `confined`: commands have the boundaries that they have at users'."""
        world = cls(database, agent_dir, root, confined=confined)
        try:
            yield world
        finally:
            for worker in world._workers:
                world.kill(worker)
            if world._server is not None:
                world._server.__exit__(None, None, None)

    def play(self, *replies: dict[str, Any], **fields: Any) -> MockServer:
        """Let the model say this in every conversation; `fields` are its own."""
        self._server = MockServer.in_thread(list(replies))
        server: MockServer = self._server.__enter__()
        self.server = server
        cost = {"input": 1, "output": 1, "cacheRead": 1, "cacheWrite": 1}
        (self.agent_dir / "models.json").write_text(json.dumps(server.models_json(cost=cost, **fields)))
        (self.agent_dir / "subagents.json").write_text(json.dumps(self.settings))
        return server

    def change(self, settings: dict[str, Any]) -> None:
        """Let the user's settings be others from now on."""
        self.settings |= settings
        (self.agent_dir / "subagents.json").write_text(json.dumps(self.settings))

    def act(self, turn: int, *, after: str = "", **fields: Any) -> dict[str, Any]:
        """A reply that calls bash, which leaves a line in the log."""
        command = LOG.format(turn=turn, log=self.log) + (f"; {after}" if after else "")
        return {"calls": [{"name": "bash", "arguments": {"command": command}}], **fields}

    def start_worker(self, *flags: str, **variables: str) -> subprocess.Popen[str]:
        """A worker that takes runs; `variables` of its environment that are not ours."""
        worker = self.launch_worker(*flags, **variables)
        self.await_worker(worker)
        return worker

    def launch_worker(self, *flags: str, **variables: str) -> subprocess.Popen[str]:
        """The same, and nobody waits until it takes runs."""
        number = len(self._workers)
        place = str(self._root / f"w{number}")
        own = {"XDG_CACHE_HOME": place, "RETINUE_WORKER_DIR": place, "RETINUE_DATABASE": self.database}
        environment = {**os.environ, **own, **variables}
        words = ["worker", *(() if "--drain" in flags else ("--drain", "0")), *flags]
        worker = self.start(words, environment, self._root, self._root / f"worker{number}.log")
        self._workers.append(worker)
        return worker

    def await_worker(self, worker: subprocess.Popen[str]) -> None:
        """Wait until it takes runs."""
        number = self._workers.index(worker)
        self.wait_until(lambda: "takes up to" in self.read_log(number), f"worker {number} is ready")

    def mark_worker(self, worker: subprocess.Popen[str]) -> str:
        """The variable that a worker and all it starts have, and nobody else."""
        return f"XDG_CACHE_HOME={self._root / f'w{self._workers.index(worker)}'}"

    def read_log(self, number: int) -> str:
        """What a worker has said."""
        return (self._root / f"worker{number}.log").read_text()

    def kill(self, worker: subprocess.Popen[str]) -> None:
        """End a worker as a power cut would."""
        if worker.poll() is None:
            worker.send_signal(signal.SIGKILL)
            worker.wait(10)

    def open_face(self, **options: Any) -> Retinue:
        """A main agent whose crew works on the cluster."""
        environment = {**os.environ, "RETINUE_DATABASE": self.database}
        return Retinue(self.project, model="mock/mock-1", environment=environment, **options)

    def start_face(self, session: Path, prompt: str) -> subprocess.Popen[str]:
        """The program itself with this prompt, on a session of its own."""
        words = ["-p", "--model", "mock/mock-1", "--session", str(session), prompt]
        with (self._root / "face.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "retinue", *words],
                env={**os.environ, "RETINUE_DATABASE": self.database},
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def read_face(self) -> str:
        """What faces have said."""
        return (self._root / "face.log").read_text()

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Look into the database."""
        with psycopg.connect(self.database) as connection:
            return connection.execute(sql, values).fetchall()

    def do(self, sql: str) -> None:
        """Change something in the database."""
        with psycopg.connect(self.database) as connection:
            connection.execute(sql)

    @property
    def served_tokens(self) -> int:
        """What the model's provider would bill, when each reply of the script has this usage."""
        return len(self.server.requests) * sum(USAGE.values())

    def has_runs(self) -> bool:
        """Whether a run has come to the cluster."""
        [(is_made,)] = self.ask("SELECT to_regclass('retinue.runs') IS NOT NULL")
        return bool(is_made) and bool(self.ask("SELECT 1 FROM retinue.runs"))

    @property
    def effects(self) -> list[str]:
        """Every time a scripted call was done."""
        return self.log.read_text().splitlines()

    def wait_until(self, holds: Any, what: str, limit_s: float = 40.0) -> None:
        """Wait for something that happens elsewhere."""
        deadline_s = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > deadline_s:
                said = [self.read_log(number) for number in range(len(self._workers))]
                raise AssertionError(f"not within {limit_s:g} s: {what}\n" + "\n".join(said))
            time.sleep(0.05)


@contextmanager
def open_world() -> Iterator[tuple[ClusterWorld, Postgres]]:
    """A world with a server of its own, and that server."""
    programs = find_postgres()
    if programs is None:
        raise RuntimeError("no Postgres: install Debian's postgresql")
    root = Path(tempfile.mkdtemp(prefix="retinue-cluster-"))
    root.chmod(0o711)
    agent = root / "home" / ".pi" / "agent"
    agent.mkdir(parents=True)
    kept = {name: os.environ.get(name) for name in ("PI_CODING_AGENT_DIR", "RETINUE_NO_LOCAL")}
    os.environ |= {"PI_CODING_AGENT_DIR": str(agent), "RETINUE_NO_LOCAL": "1"}
    try:
        with open_postgres(programs, root / "postgres") as server:
            (root / "w").mkdir()
            with ClusterWorld.open(server.make_database(), agent, root / "w") as world:
                yield world, server
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            os.environ |= {name: value} if value is not None else {}
        shutil.rmtree(root, ignore_errors=True)

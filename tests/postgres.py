"""Runs a temporary Postgres server on loopback and a socket in a temporary folder."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def find_postgres() -> Path | None:
    """Return the folder of the server's programs, which Debian keeps out of PATH."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").is_file():
            return folder
    found = shutil.which("initdb")
    return Path(found).parent if found else None


class Postgres:
    """One server process."""

    def __init__(self, programs: Path, root: Path) -> None:
        self._programs = programs
        self._data = root / "data"
        self._root = root
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def prepare(self) -> None:
        """Initialize the data directory."""
        self._root.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self._root, "postgres")
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "retinue", "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        """Start, and return when it accepts connections."""
        options = [
            "-c",
            f"port={self.port}",
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            f"unix_socket_directories={self._root}",
        ]
        options += ["-c", "fsync=off", "-c", "max_connections=300", "-c", "shared_buffers=32MB"]
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix(), str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ready = subprocess.run(
                [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError((self._root / "log").read_text()[-2000:])

    @property
    def pid(self) -> int:
        """The process id of the running server; 0 if it is stopped."""
        return self._process.pid if self._process is not None else 0

    def stop(self) -> None:
        """Stop at once; clients are disconnected."""
        if self._process is not None:
            self._run("pg_ctl", "stop", "-D", str(self._data), "-m", "immediate")
            self._process.wait(20)
            self._process = None

    def make_database(self, like: str = "") -> str:
        """Create a database and return its URL: empty, or a copy of one without connections."""
        self._databases += 1
        name = f"test{self._databases}"
        origin = ("-T", like.rpartition("/")[2]) if like else ()
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "retinue", *origin, name)
        return f"postgresql://retinue@127.0.0.1:{self.port}/{name}"

    def _prefix(self) -> list[str]:
        # The server refuses to run as root.
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._prefix(), str(self._programs / program), *arguments], check=True, capture_output=True, cwd="/"
        )


@contextmanager
def open_postgres(programs: Path, root: Path) -> Iterator[Postgres]:
    """Yield a running server; it is stopped at the end."""
    server = Postgres(programs, root)
    server.prepare()
    server.start()
    try:
        yield server
    finally:
        server.stop()

"""Where figures are taken: a folder of its own on a real disk, and programs that see nothing of the user's settings."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.mock import Mock, write_models_json

ROOT = Path(__file__).resolve().parent.parent
CLI = [sys.executable, "-m", "retinue"]


@dataclass(frozen=True, slots=True)
class Workplace:
    """A project folder and an agent directory that nobody else uses."""

    folder: Path

    @property
    def agent_dir(self) -> Path:
        return self.folder / "agent"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def environment(self) -> dict[str, str]:
        """The variables a measured program sees: no keys, no home, no proxies."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "PI_CODING_AGENT_DIR": str(self.agent_dir),
            "RETINUE_NO_LOCAL": "1",
            "PYTHONPATH": str(ROOT),
        }

    def use(self, mock: Mock) -> None:
        """Let `mock/bench` be this server."""
        write_models_json(self.agent_dir, mock)

    def run(self, *command: str, timeout_s: float = 300) -> str:
        """Run a program to its end and return what it printed; a failure is ours to see."""
        where, seen = self.project, self.environment
        done = subprocess.run(
            command, cwd=where, env=seen, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout

    def measure(self, *command: str) -> dict[str, Any]:
        """Run a program that prints one JSON object last."""
        found: dict[str, Any] = json.loads(self.run(*command).splitlines()[-1])
        return found


@contextlib.contextmanager
def open_workplace() -> Iterator[Workplace]:
    """A fresh workplace, removed afterwards."""
    # /tmp may be memory, and sessions have to go to a disk; inside the repository its AGENTS.md would be read.
    base = Path("/var/tmp")
    folder = Path(tempfile.mkdtemp(prefix="retinue-bench-", dir=base if base.is_dir() else None)).resolve()
    try:
        workplace = Workplace(folder)
        for path in (workplace.agent_dir, workplace.project, folder / "home"):
            path.mkdir()
        yield workplace
    finally:
        shutil.rmtree(folder, ignore_errors=True)

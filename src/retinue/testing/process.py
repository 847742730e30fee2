"""Runs the `retinue` command as a black box, with its own home directory and without keys.

The command is the environment variable RETINUE_BIN, else the running Python's `-m retinue`.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import orjson
from msgspec import Struct

start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
"""Starts the command; can be replaced by a faster way."""
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""The environment variables that the command inherits."""


class CliResult(Struct, frozen=True):
    status: int
    """Exit status; the negative signal number if a signal ended it."""
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[Any]:
        """Standard output parsed as JSON lines."""
        return [orjson.loads(line) for line in self.stdout.split("\n") if line]


def fresh_home(path: Path, models: Mapping[str, Any] | None = None) -> Path:
    """Create a home directory with an agent directory, and `models.json` if given."""
    home = path / "home"
    agent_dir = home / ".pi" / "agent"
    agent_dir.mkdir(parents=True, exist_ok=True)
    if models is not None:
        (agent_dir / "models.json").write_bytes(orjson.dumps(models))
    return home


def run_cli(
    args: Sequence[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes | None = None,
    *,
    home: Path | None = None,
    timeout_s: float = 30,
) -> CliResult:
    """Run the command to its end; without a home it gets a temporary empty one."""
    with open_cli(args, cwd, env, home=home, has_stdin=stdin is not None) as process:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = process.communicate(data, timeout_s)
        return CliResult(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


@contextlib.contextmanager
def open_cli(
    args: Sequence[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    home: Path | None = None,
    has_stdin: bool = False,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command and yield the process; it is killed at the end if it still runs."""
    with tempfile.TemporaryDirectory(prefix="retinue-test-") as folder:
        home = home or fresh_home(Path(folder))
        process = start(
            [*_command(), *args],
            cwd=cwd or folder,
            env={**_environment(home), **(env or {})},
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()


def _command() -> list[str]:
    named = os.environ.get("RETINUE_BIN")
    return shlex.split(named) if named else [sys.executable, "-m", "retinue"]


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "PI_CODING_AGENT_DIR": str(home / ".pi" / "agent"),
        "RETINUE_NO_LOCAL": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "TERM": "dumb",
        "PYTHONFAULTHANDLER": "1",
    }


_IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.com",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.com",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    "GIT_TERMINAL_PROMPT": "0",
}


def make_repo(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """Create a repository with one commit on branch main; the same files give the same commit id."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    _run_git(path, "init", "--quiet", "--initial-branch=main")
    # In the repository, so that commits made by the tested code need no identity either.
    with (path / ".git" / "config").open("a") as config:
        config.write("[user]\n\tname = Test\n\temail = test@example.com\n[commit]\n\tgpgsign = false\n")
    _run_git(path, "add", "--all", "--force")
    _run_git(path, "commit", "--quiet", "--allow-empty", "--message=first")
    return path


def _run_git(path: Path, *arguments: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=path, env={**kept, **_IDENTITY}, check=True, capture_output=True)

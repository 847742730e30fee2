"""Creates temporary git repositories that do not depend on the user's git configuration."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

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

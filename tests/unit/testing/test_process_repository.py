import subprocess
from pathlib import Path

import pytest

from retinue.testing import make_repo

FILES = {"a.py": "print('ä')\n", "deep/er/b.bin": b"\x00\xff", ".gitignore": "*.log\n", "x.log": "kept"}


def run_git(path: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=path, check=True, capture_output=True, text=True).stdout


def test_repository_holds_the_files(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    assert run_git(repo, "ls-files").split() == [".gitignore", "a.py", "deep/er/b.bin", "x.log"]
    assert (run_git(repo, "status", "--porcelain"), run_git(repo, "branch", "--show-current")) == ("", "main\n")
    assert (repo / "deep/er/b.bin").read_bytes() == b"\x00\xff"


def test_same_files_same_commit(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_repo(tmp_path / "one", FILES)
    (home / ".gitconfig").write_text("[user]\nname = Someone\n[commit]\ngpgsign = true\n")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Someone")
    second = make_repo(tmp_path / "two", FILES)
    assert run_git(first, "rev-parse", "HEAD") == run_git(second, "rev-parse", "HEAD")

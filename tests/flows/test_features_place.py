import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.engine.prompt import Place
from retinue.features.place import find_program, harden_environment, survey_place
from retinue.testing import make_repo


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def place(folder, branch=None):
    return Place(str(folder), branch, sys.platform, os.environ.get("SHELL", ""))


def put_program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def repo(tmp_path):
    return make_repo(tmp_path / "repo", {"a.txt": "a"})


@pytest.mark.spec("fleet:B40")
async def test_branch_is_found(repo):
    git(repo, "checkout", "-q", "-b", "topic")
    assert await survey_place(repo, os.environ) == place(repo, "topic")


@pytest.mark.spec("fleet:B40")
async def test_plain_folder_is_no_repository(tmp_path):
    assert await survey_place(tmp_path, os.environ) == place(tmp_path)


async def test_detached_head_has_no_branch(repo):
    git(repo, "checkout", "-q", "--detach")
    assert await survey_place(repo, os.environ) == place(repo, "")


async def test_missing_git_is_no_error(repo):
    assert await survey_place(repo, {"PATH": "/nonexistent"}) == Place(str(repo))


async def test_missing_folder_is_no_error(tmp_path):
    assert await survey_place(tmp_path / "gone", os.environ) == place(tmp_path / "gone")


async def test_inherited_git_directory_is_ignored(repo, tmp_path):
    other = make_repo(tmp_path / "other", {"b.txt": "b"})
    git(other, "checkout", "-q", "-b", "elsewhere")
    found = await survey_place(repo, {**os.environ, "GIT_DIR": str(other / ".git")})
    assert found.branch not in (None, "elsewhere")


async def test_git_is_asked_with_care(tmp_path):
    (tmp_path / "work" / ".git").mkdir(parents=True)
    put_program(tmp_path / "bin", "git", f'echo "$* | $OPENAI_API_KEY$GIT_DIR$GIT_CONFIG_NOSYSTEM" >> {tmp_path}/asked')
    environment = {"PATH": f"{tmp_path}/bin", "GIT_DIR": "/elsewhere", "OPENAI_API_KEY": "k"}
    await survey_place(tmp_path / "work", environment)
    careful = "--no-pager -c core.fsmonitor= -c core.hooksPath=/dev/null -c safe.bareRepository=explicit"
    assert sorted((tmp_path / "asked").read_text().splitlines()) == [
        f"{careful} branch --show-current | 1",
        f"{careful} rev-parse --is-inside-work-tree | 1",
    ]


@pytest.mark.attack("A14", "A23")
async def test_repository_brings_no_git(repo, tmp_path):
    put_program(repo / "bin", "git", f"touch {tmp_path}/ran")
    (repo / "below").mkdir()
    assert await survey_place(repo / "below", {"PATH": f"{repo}/bin"}) == Place(str(repo / "below"))
    assert not (tmp_path / "ran").exists()


def test_search_path_must_be_absolute(tmp_path, monkeypatch):
    put_program(tmp_path / "bin", "git", "true")
    monkeypatch.chdir(tmp_path)
    found = [find_program("git", {"PATH": path}) for path in ("bin", ".:bin", "", f"bin:{tmp_path}/bin")]
    assert found == [None, None, None, f"{tmp_path}/bin/git"]


async def test_slow_git_is_given_up(tmp_path):
    put_program(tmp_path / "bin", "git", "exec sleep 60")
    began = time.monotonic()
    found = await survey_place(
        tmp_path, {"PATH": f"{tmp_path}/bin:{os.path.dirname(shutil.which('sleep'))}"}, timeout_s=0.1
    )
    assert (found, time.monotonic() - began < 3) == (Place(str(tmp_path)), True)


def test_git_variables_are_replaced():
    assert harden_environment({"HOME": "/h", "GIT_DIR": "/x", "GIT_PAGER": "evil"}) == {
        "HOME": "/h",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }

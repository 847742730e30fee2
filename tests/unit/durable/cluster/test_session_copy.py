"""An agent may write where its sessions are kept: it leads us to no other file."""

import os
from pathlib import Path

import pytest

from retinue.core.errors import SessionError
from retinue.durable.cluster.remote_run import find_session_id
from retinue.durable.cluster.session_copy import SenderSession, bring_files, collect_files

LINES = b'{"type":"session","id":"abc"}\n'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "secret"
    path.parent.mkdir()
    path.write_text("secret\n")
    path.chmod(0o644)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "project" / "sessions" / "r1.jsonl"
    path.parent.mkdir(parents=True)
    return path


def list_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_session_is_kept_private(tmp_path: Path, file: Path) -> None:
    home = SenderSession(str(file), is_shared=True)
    with home.hold():
        assert (home.read(), home.write(LINES)) == (b"", str(file))
    assert (home.read(), file.stat().st_mode & 0o777, list_files(tmp_path)) == (
        LINES,
        0o600,
        ["project/sessions/r1.jsonl"],
    )


@pytest.mark.attack("SEC-11")
@pytest.mark.parametrize("name", ["r1.part", "r1.jsonl"])
def test_write_follows_no_link(file: Path, secret: Path, name: str) -> None:
    (file.parent / name).symlink_to(secret)
    SenderSession(str(file), is_shared=False).write(LINES)
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("secret\n", 0o644)
    assert (file.is_symlink(), file.read_bytes()) == (False, LINES)


@pytest.mark.attack("SEC-11")
@pytest.mark.parametrize("depth", [1, 2])
def test_moved_folder_gets_nothing(tmp_path: Path, file: Path, secret: Path, depth: int) -> None:
    home = SenderSession(str(file), is_shared=False)
    folder = file.parents[depth - 1]
    folder.rename(tmp_path / "away")
    (secret.parent / "sessions").mkdir()
    folder.symlink_to(secret.parent)
    with pytest.raises(SessionError, match="is now a link or inside one"):
        home.write(LINES)
    assert list_files(secret.parent) == ["secret"]


@pytest.mark.attack("SEC-11")
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_no_other_file_is_sent(file: Path, secret: Path, kind: str) -> None:
    {"link": lambda: file.symlink_to(secret), "pipe": lambda: os.mkfifo(file), "folder": file.mkdir}[kind]()
    home = SenderSession(str(file), is_shared=True)
    with pytest.raises(SessionError, match=r"cannot (open|read) session"), home.hold():
        home.read()
    with pytest.raises(SessionError, match="cannot read session"):
        home.read()
    assert find_session_id("r1", str(file)) == find_session_id("r1", str(file.with_name("other") / file.name))


@pytest.mark.attack("SEC-11")
def test_endless_first_line_is_no_id(file: Path) -> None:
    file.symlink_to("/dev/zero")
    assert find_session_id("r1", str(file)) == find_session_id("r1", file.name)


def test_missing_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "r1.jsonl"
    SenderSession(str(path), is_shared=False).write(LINES)
    assert (path.read_bytes(), path.parent.stat().st_mode & 0o777) == (LINES, 0o700)


def test_linked_folder_of_the_user_counts(tmp_path: Path, file: Path) -> None:
    (tmp_path / "link").symlink_to(file.parent)
    SenderSession(str(tmp_path / "link" / "r1.jsonl"), is_shared=False).write(LINES)
    assert file.read_bytes() == LINES


def test_files_below_are_found():
    pieces = [("s/a/session.jsonl", 0, b"one\n"), ("s.jsonl", 0, b"own\n"), ("s/a/session.jsonl", 4, b"two\n")]
    assert collect_files([*pieces, ("s/b/session.jsonl", 0, b"b\n")], "s.jsonl") == {"a": b"one\ntwo\n", "b": b"b\n"}


NAMES = "s/../session.jsonl s/a/../session.jsonl /s/a/session.jsonl s//session.jsonl s/a/other.jsonl t/a/session.jsonl"


@pytest.mark.parametrize("name", NAMES.split())
def test_other_names_are_nothing(name):
    assert collect_files([(name, 0, b"x\n")], "s.jsonl") == {}


def test_file_with_gap_is_left_out():
    assert collect_files([("s/a/session.jsonl", 9, b"x\n")], "s.jsonl") == {}


async def test_only_known_runs_are_written(tmp_path):
    pieces = [("s/a/session.jsonl", 0, b"a\n"), ("s/b/session.jsonl", 0, b"b\n")]
    places = {"a": tmp_path / "a" / "session.jsonl"}
    problems = await bring_files(pieces, "s.jsonl", places.get)
    assert (problems, [path.read_bytes() for path in tmp_path.rglob("*.jsonl")]) == ([], [b"a\n"])


async def test_nothing_is_written_through_links(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "theirs")
    pieces = [("s/a/session.jsonl", 0, b"a\n")]
    problems = await bring_files(pieces, "s.jsonl", lambda run_id: tmp_path / run_id / "session.jsonl")
    assert (len(problems), list((tmp_path / "theirs").iterdir())) == (1, [])


async def test_full_place_costs_no_run(tmp_path):
    (tmp_path / "a").write_text("a file")
    problems = await bring_files(
        [("s/a/session.jsonl", 0, b"a\n")], "s.jsonl", lambda run_id: tmp_path / run_id / "session.jsonl"
    )
    assert ["could not be stored here" in problem for problem in problems] == [True]

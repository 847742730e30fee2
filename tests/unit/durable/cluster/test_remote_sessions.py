import pytest

from retinue.durable.cluster.session_copy import bring_files, collect_files


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
    assert ["could not be brought home" in problem for problem in problems] == [True]

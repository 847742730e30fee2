import pytest

from retinue.core.errors import RetinueError
from retinue.durable.session_files import SESSION, RecordPart, SessionFolder


def test_collects_whole_new_lines(tmp_path):
    mirror, file = SessionFolder(tmp_path), tmp_path / "session.jsonl"
    file.write_bytes(b"one\ntw")
    first = mirror.collect()
    mirror.settle(first)
    file.write_bytes(b"one\ntwo\nthree\n")
    assert first == [RecordPart(SESSION, "session.jsonl", 0, b"one\n")]
    assert mirror.collect() == [RecordPart(SESSION, "session.jsonl", 4, b"two\nthree\n")]


def test_what_was_not_kept_comes_again(tmp_path):
    mirror = SessionFolder(tmp_path)
    (tmp_path / "session.jsonl").write_bytes(b"one\n")
    assert mirror.collect() == mirror.collect() != []


def test_restores_files_elsewhere(tmp_path):
    there = SessionFolder(tmp_path / "there")
    there.restore(
        [RecordPart(SESSION, "a/session.jsonl", 0, b"one\n"), RecordPart(SESSION, "a/session.jsonl", 4, b"two\n")]
    )
    assert (tmp_path / "there/a/session.jsonl").read_bytes() == b"one\ntwo\n"
    assert there.collect() == []


@pytest.mark.parametrize("path", ["../out.jsonl", "/tmp/out.jsonl", "a/../../out.jsonl", ""])
def test_restores_nothing_outside(tmp_path, path):
    with pytest.raises(RetinueError):
        SessionFolder(tmp_path / "there").restore([RecordPart(SESSION, path, 0, b"x\n")])

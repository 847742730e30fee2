import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from retinue.engine.external.input_files import STALE_S, open_input_files


@pytest.fixture(autouse=True)
def tmp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.spec("devkit:28")
def test_papers_are_gone_after_an_error(tmp):
    with pytest.raises(ValueError, match="x"), open_input_files("p", "t"):
        assert len(list(tmp.iterdir())) == 1
        raise ValueError("x")
    assert list(tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "words"),
    [("do it", ("do it",)), ("-x", ("--", "-x")), ("x" * 8000, ("x" * 8000,)), ("a\ud800", ("a?",))],
)
def test_short_tasks_are_words(task, words):
    with open_input_files("p", task) as papers:
        assert papers.words == words


@pytest.mark.parametrize("task", ["@file", "x" * 8001, "a\0b"])
def test_other_tasks_are_files(task):
    with open_input_files("p", task) as papers:
        (word,) = papers.words
        assert (word[:2], Path(word[1:]).read_text()) == ("@/", task)


def test_old_papers_of_the_dead_are_removed(tmp):
    dead = subprocess.Popen(["true"])
    dead.wait()
    names = [f"retinue-child-{dead.pid}-a", f"retinue-child-{dead.pid}-b", f"retinue-child-{os.getpid()}-c"]
    names += ["retinue-child-x-d", f"{dead.pid}-e", f"retinue-child-{10**30}-f"]
    for name in names:
        (tmp / name).mkdir()
    for name in (names[0], *names[2:]):
        os.utime(tmp / name, (0, os.stat(tmp / name).st_mtime - STALE_S - 1))
    with open_input_files("p", "t"):
        pass
    assert sorted(path.name for path in tmp.iterdir()) == sorted(names[1:])

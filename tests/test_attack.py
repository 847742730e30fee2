"""The table of attacks is whole, no test names a case that does not exist, and none is without an answer."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
TABLE = tomllib.loads((TESTS / "data" / "attack" / "cases.toml").read_text(encoding="utf-8"))
MARKER = re.compile(r"mark\.attack\(([^)]*)\)")
SIZES = {"A": 23, "B": 24, "C": 12, "D": 17, "E": 14, "F": 11, "G": 12, "H": 12, "I": 15}


def find_marked() -> set[str]:
    """The ids that tests carry; the corpus of commands names its own."""
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    marked = {
        id for text in texts for marker in MARKER.findall(text) for id in re.findall(r"[\"']([^\"']+)[\"']", marker)
    }
    corpus = (TESTS / "data" / "attack" / "bash_corpus.txt").read_text(encoding="utf-8")
    return marked | set(re.findall(r"\bB\d+\b", corpus)) | {"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8"}


def test_table_has_every_case() -> None:
    assert list(TABLE) == [f"{group}{number + 1}" for group, size in SIZES.items() for number in range(size)]


def test_markers_name_known_cases() -> None:
    assert sorted(id for id in find_marked() - set(TABLE) if not re.fullmatch(r"SEC-\d+", id)) == []


def test_every_case_has_an_answer() -> None:
    answered = {id for id, item in TABLE.items() if set(item) & {"issue", "settled"}}
    assert sorted(set(TABLE) - find_marked() - answered) == []


def test_every_trap_has_tests() -> None:
    traps = tomllib.loads((TESTS / "data" / "attack" / "traps.toml").read_text(encoding="utf-8"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in (TESTS / "flows").glob("test_sandbox_*.py"))
    named = [test for item in traps.values() for test in item["tests"]]
    assert (list(traps), [test for test in named if f"def {test}(" not in text]) == ([str(n) for n in range(1, 11)], [])


CASES = """
import pathlib, pytest
@pytest.mark.parametrize("id", [pytest.param(id, marks=pytest.mark.attack(id)) for id in {ids!r}])
def test_case(id):
    with open({log!r}, "a") as log:
        log.write(id + " ")
    {body}
"""
ENDS = {
    "stopped": ([], "pass", (0, f"attack: {len(TABLE)} cases: {len(TABLE)} stopped")),
    "missing": (["A1"], "pass", (1, f"attack: {len(TABLE)} cases: {len(TABLE) - 1} stopped, 1 missing")),
    "failed": ([], "assert id != 'A2'", (1, f"attack: {len(TABLE)} cases: {len(TABLE) - 1} stopped, 1 failed")),
    "skipped": ([], "if id == 'A3': pytest.skip('-')", (1, f"{len(TABLE) - 1} stopped, 1 skipped")),
    "strange": ([], "pass", (1, "X1: no such case; carried by test_cases.py::test_case[X1]")),
}


@pytest.mark.parametrize("end", ENDS)
def test_run_of_all_tests_judges_every_case(tmp_path: Path, end: str) -> None:
    without, body, (status, said) = ENDS[end]
    ids = [id for id in TABLE if id not in without] + (["X1"] if end == "strange" else [])
    text = CASES.format(ids=ids, body=body, log=str(tmp_path / "log"))
    (tmp_path / "test_cases.py").write_text(text)
    flags = ["-n", "2", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *flags, "--attack-table", str(tmp_path / "table"), "test_cases.py"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS.parent), "CI": "true"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (status, True), done.stdout + done.stderr
    # Each was tried, and none was tried again.
    assert sorted((tmp_path / "log").read_text().split()) == sorted(ids)
    assert (tmp_path / "table").read_text().count("passed: test_cases.py::test_case") > len(TABLE) - 3

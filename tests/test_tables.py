"""A run of all tests judges every attack case and every behaviour, and tells what was tried again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.tables import TABLES, load_rows

ROOT = Path(__file__).resolve().parent.parent
IDS = {table.marker: [row.id for row in load_rows(table)] for table in TABLES}
MARKED = """
import pytest
IDS = {ids!r}
CASES = [pytest.param(id, marks=getattr(pytest.mark, marker)(id)) for marker, ids in IDS.items() for id in ids]
@pytest.mark.parametrize("id", CASES)
def test_row(id):
    with open("log", "a") as log:
        log.write(id + " ")
    {body}
"""
UNSTEADY = """
import pathlib, pytest
@pytest.mark.parametrize("name", {names!r})
def test_second_time(name):
    with open("log", "a") as log:
        log.write(name + " ")
    assert pathlib.Path("log").read_text().split().count(name) > 1
"""


def run(folder: Path, text: str, *flags: str, workers: int = 0, **environment: str) -> tuple[int, str, list[str]]:
    """The exit status of these tests, what was printed, and what they have logged."""
    (folder / "test_sample.py").write_text(text)
    flags = (
        "-n",
        str(workers),
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "-c",
        os.devnull,
        *flags,
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-m", "pytest", *flags, "test_sample.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, (folder / "log").read_text().split()


@pytest.mark.parametrize(
    ("body", "has_row", "workers", "status", "word"),
    [
        ("pass", True, 0, 0, ""),
        ("pass", False, 0, 1, {"attack": "missing", "conformance": "open"}),
        ("assert id not in {ids!r}", True, 2, 1, "failed"),
        ("if id in {ids!r}: pytest.skip('-')", True, 0, 1, "skipped"),
    ],
)
def test_run_judges_every_row(
    tmp_path: Path, body: str, has_row: bool, workers: int, status: int, word: str | dict[str, str]
) -> None:
    firsts = [ids[0] for ids in IDS.values()]
    ids = {marker: [id for id in ids if has_row or id not in firsts] for marker, ids in IDS.items()}
    text = MARKED.format(ids=ids, body=body.format(ids=firsts))
    found, output, log = run(tmp_path, text, "--tables", "told", workers=workers, CI="true")
    assert found == status, output
    for table in TABLES:
        count, told = len(IDS[table.marker]), word[table.name] if isinstance(word, dict) else word
        said = f"{count - 1} {table.good}" if told else f"{count} {table.good}"
        assert (f"{table.name}: {count} {table.noun}s: " in output, said in output) == (True, True), output
        assert not told or f"1 {told}" in output
        rows = (tmp_path / "told" / f"{table.name}.txt").read_text()
        assert rows.count("passed: test_sample.py::test_row") > count - 3
    # Each was tried, and none was tried again.
    assert sorted(log) == sorted(id for each in ids.values() for id in each)


def test_skipped_attack_is_left_to_ci(tmp_path: Path) -> None:
    text = MARKED.format(ids=IDS, body="if id in ('A1', 'fleet:B1'): pytest.skip('-')")
    status, output, _ = run(tmp_path, text, "--tables", "told")
    faults = [line for line in output.splitlines() if line.startswith(("A1 ", "fleet:B1 "))]
    assert (status, [line.split()[:2] for line in faults]) == (1, [["fleet:B1", "skipped"]])


def test_unknown_ids_fail_the_run(tmp_path: Path) -> None:
    ids = {marker: [*known, f"X-{marker}"] for marker, known in IDS.items()}
    status, output, _ = run(tmp_path, MARKED.format(ids=ids, body="pass"), "--tables", "told")
    for table in TABLES:
        id = f"X-{table.marker}"
        assert f"{id}: no such {table.noun}; carried by test_sample.py::test_row[{id}]" in output
    assert status == 1


@pytest.mark.parametrize(("count", "status"), [(3, 0), (4, 1)])
def test_reruns_are_listed_and_few(tmp_path: Path, count: int, status: int) -> None:
    names = "abcd"[:count]
    found, output, log = run(tmp_path, UNSTEADY.format(names=list(names)), workers=2)
    told = sorted(line for line in output.splitlines() if line.startswith("tried again: "))
    assert (found, sorted(log)) == (status, sorted(names * 2))
    assert told == [f"tried again: test_sample.py::test_second_time[{name}]" for name in names]
    assert ("4 reruns, more than 3" in output) is (status == 1)


def test_nothing_is_rerun_when_asked_so(tmp_path: Path) -> None:
    status, output, log = run(tmp_path, UNSTEADY.format(names=["a"]), RERUNS="0")
    assert (status, log, "tried again" in output) == (1, ["a"], False)

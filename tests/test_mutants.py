"""The changes of `make mutants` are real ones, and each excuse is for one of them."""

import json
from pathlib import Path

import pytest

from scripts import mutants
from scripts.mutants import ROOT, Finder, choose_mutants, list_sources, load_excuses, read_recording


def test_sample_is_large_and_of_other_programs() -> None:
    chosen = choose_mutants(320, 1)
    large = {path.relative_to(ROOT).as_posix() for path in list_sources() if path.read_text().count("\n") > 30}
    assert (len(chosen) >= 300, large - {mutant.path for mutant in chosen}) == (True, set())
    for mutant in chosen:
        before = (ROOT / mutant.path).read_bytes()
        after = compile(mutant.apply(before), mutant.path, "exec")
        assert after != compile(before, mutant.path, "exec"), mutant.title


def test_excuses_are_for_changes_that_can_be_made() -> None:
    possible = {mutant.key for path in list_sources() for mutant in Finder(path).find()}
    assert set(load_excuses()) - possible == set()


def test_recorded_lines_move_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_, last = (path for path in list_sources() if path.name != "__init__.py")
    names = [path.relative_to(ROOT).as_posix() for path in (first, last)]
    entry = {"seconds": 1.0, "lines": dict.fromkeys(names, f"{1 << 5 | 1 << 7:x}")}
    files = {"tests/test_x.py": {"digest": "", "tests": {"tests/test_x.py::test_x": entry}}}
    sources = {names[0]: f"# one\n# two\n{first.read_text()}", names[1]: last.read_text()}
    (tmp_path / "recording.json").write_text(json.dumps({"sources": sources, "files": files}))
    monkeypatch.setattr(mutants, "RECORDING", tmp_path / "recording.json")
    moved = read_recording()["tests/test_x.py"]["tests"]["tests/test_x.py::test_x"]["lines"]
    assert moved == {names[0]: f"{1 << 3 | 1 << 5:x}", names[1]: f"{1 << 5 | 1 << 7:x}"}

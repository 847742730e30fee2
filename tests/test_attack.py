"""The table of attacks is whole, no test names a case that does not exist, and none is without an answer."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).resolve().parent
TABLE = tomllib.loads((TESTS / "data" / "attack" / "cases.toml").read_text(encoding="utf-8"))
MARKER = re.compile(r"mark\.attack\(([^)]*)\)")
SIZES = {"A": 23, "B": 24, "C": 12, "D": 17, "E": 14, "F": 11, "G": 12, "H": 12, "I": 15, "J": 6}


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

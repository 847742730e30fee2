"""The table of behaviours is whole, and no test names one that does not exist."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).resolve().parent
TABLE = tomllib.loads((TESTS / "data" / "conformance.toml").read_text(encoding="utf-8"))
MARKER = re.compile(r"mark\.spec\(([^)]*)\)")


def test_table_has_every_number() -> None:
    expected = {
        "fleet": [f"B{number}" for number in range(1, 101)],
        "devkit": [str(number) for number in range(1, 80)],
        "sticky": [str(number) for number in range(1, 26)],
        "codingcode": [str(number) for number in range(1, 45)],
    }
    assert {system: list(items) for system, items in TABLE.items()} == expected


def test_every_behaviour_has_an_answer() -> None:
    rows = [(system, number, item) for system, items in TABLE.items() for number, item in items.items()]
    odd = [(system, number) for system, number, item in rows if set(item) - {"text"} not in ({"issue"}, {"settled"})]
    assert odd == []


def test_markers_name_known_behaviours() -> None:
    known = {f"{system}:{number}" for system, items in TABLE.items() for number in items}
    found = {
        id
        for path in TESTS.rglob("test_*.py")
        for marker in MARKER.findall(path.read_text(encoding="utf-8"))
        for id in re.findall(r"[\"']([^\"']+)[\"']", marker)
    }
    assert sorted(id for id in found - known if not id.startswith("reliability:")) == []

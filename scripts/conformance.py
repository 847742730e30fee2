"""Prints, for each numbered behaviour of the four systems, the tests that pin it and how they went.

The behaviours are in tests/data/conformance.toml. A test pins one by `@pytest.mark.spec("fleet:B12")`. Exit status 1
when such a test fails, names a behaviour that does not exist, or when a behaviour has no test, no settlement, no issue.
`--list` only collects, without running anything.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "data" / "conformance.toml"
# Ids of other pages, which tests may carry and this table does not list.
OTHERS = ("reliability:",)


class Behaviour(NamedTuple):
    """One numbered behaviour."""

    id: str
    text: str
    settled: str = ""
    issue: int | None = None


class Collector:
    """A pytest plugin: which tests carry which ids, and how they went."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = {}
        self.results: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        marked = {item: [id for mark in item.iter_markers("spec") for id in mark.args] for item in items}
        for item, ids in marked.items():
            for id in ids:
                self.tests.setdefault(id, []).append(item.nodeid)
        config.hook.pytest_deselected(items=[item for item in items if not marked[item]])
        items[:] = [item for item in items if marked[item]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worst = ("failed", "skipped", "passed")
        outcome = "failed" if report.failed else "skipped" if report.skipped else "passed"
        before = self.results.get(report.nodeid, "passed")
        self.results[report.nodeid] = min(outcome, before, key=worst.index)

    def judge(self, id: str) -> dict[str, str]:
        """The results of the tests of a behaviour, by test function."""
        found: dict[str, str] = {}
        order = ("failed", "not run", "skipped", "passed")
        for test in self.tests.get(id, ()):
            name = test.partition("[")[0]
            result = self.results.get(test, "not run")
            found[name] = min(found.get(name, "passed"), result, key=order.index)
        return found


def load_behaviours(path: Path = TABLE) -> list[Behaviour]:
    """The table, in its order."""
    table: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Behaviour(f"{system}:{number}", item["text"], str(item.get("settled", "")), item.get("issue"))
        for system, items in table.items()
        for number, item in items.items()
    ]


def render(behaviours: list[Behaviour], collector: Collector, *, has_run: bool) -> Iterator[tuple[str, str]]:
    """Each line with its state: pinned, settled, open, failed or missing."""
    for item in behaviours:
        found = collector.judge(item.id)
        yield f"{item.id:<14} {item.text}", ""
        for test, result in found.items():
            state = "failed" if has_run and result in ("failed", "not run") else "pinned"
            yield f"{'':<14}   {result if has_run else 'collected'}: {test}", state
        if item.settled:
            yield f"{'':<14}   settled otherwise: decisions {item.settled}", "settled"
        elif not found and item.issue is not None:
            yield f"{'':<14}   issue {item.issue}", "open"
        elif not found:
            yield f"{'':<14}   NO TEST, no settlement and no issue", "missing"


def find_strangers(behaviours: list[Behaviour], collector: Collector) -> list[str]:
    """Ids that tests carry and no page has."""
    known = {item.id for item in behaviours}
    return sorted(id for id in collector.tests if id not in known and not id.startswith(OTHERS))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="only collect")
    parser.add_argument("paths", nargs="*", default=["tests"])
    options = parser.parse_args(arguments)
    behaviours, collector = load_behaviours(), Collector()
    flags = ["--collect-only", "-q"] if options.list else ["-q", "--no-header", "--tb=line", "-m", "not slow"]
    status = pytest.main([*flags, "-p", "no:cacheprovider", *options.paths], plugins=[collector])
    counts: dict[str, set[str]] = {}
    current = ""
    for line, state in render(behaviours, collector, has_run=not options.list):
        current = line if not state else current
        if state:
            counts.setdefault(state, set()).add(current.split()[0])
        print(line)
    strangers = find_strangers(behaviours, collector)
    for id in strangers:
        print(f"{id}: no such behaviour; carried by {', '.join(collector.tests[id])}")
    summary = [f"{len(counts.get(state, ()))} {state}" for state in ("pinned", "settled", "open", "failed", "missing")]
    print(f"\n{len(behaviours)} behaviours: {', '.join(summary)}")
    is_broken = status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return 1 if counts.get("failed") or counts.get("missing") or strangers or is_broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Tables of what tests stand for, attack cases and numbered behaviours: for each row its tests and how they went.

A test stands for a row by the table's marker, `@pytest.mark.attack("A1")` or `@pytest.mark.spec("fleet:B12")`. A run of
all tests judges both tables by the option --tables of tests/conftest.py; scripts/attack.py and scripts/conformance.py
run the tests of one.
"""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
ORDER = ("failed", "not run", "skipped", "passed")
VARIANTS = ("failed", "not run", "passed", "skipped")


class Table(NamedTuple):
    """One table."""

    name: str
    marker: str
    noun: str
    good: str
    """What a row is called whose tests have passed."""
    path: Path
    others: str
    """How ids begin that tests may carry and the table does not list."""
    may_skip: bool = False
    """Who has not all programs here may leave a row to CI, which has them."""


ATTACK = Table("attack", "attack", "case", "stopped", DATA / "attack" / "cases.toml", "SEC-", may_skip=True)
CONFORMANCE = Table("conformance", "spec", "behaviour", "pinned", DATA / "conformance.toml", "reliability:")
TABLES = (ATTACK, CONFORMANCE)


class Row(NamedTuple):
    """One attack or behaviour."""

    id: str
    text: str
    settled: str = ""
    issue: int | None = None


def load_rows(table: Table) -> list[Row]:
    """The table, in its order; the behaviours of a system are a table of their own."""

    def read(items: dict[str, Any], prefix: str) -> Iterator[Row]:
        for id, item in items.items():
            if "text" in item:
                yield Row(prefix + id, item["text"], str(item.get("settled", "")), item.get("issue"))
            else:
                yield from read(item, f"{prefix}{id}:")

    return list(read(tomllib.loads(table.path.read_text(encoding="utf-8")), ""))


class Collector:
    """A pytest plugin: which tests carry which ids, and how they went. Reports bring both from workers, too."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.tests: dict[str, list[str]] = {}
        self.results: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._note(item.nodeid, item.user_properties)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report.nodeid, report.user_properties)
        outcome = "failed" if report.failed else "skipped" if report.skipped else "passed"
        before = self.results.get(report.nodeid, "passed")
        self.results[report.nodeid] = min(outcome, before, key=ORDER.index)
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.nodeid.partition("[")[0]] = str(report.longrepr[2]).removeprefix("Skipped: ")

    def _note(self, test: str, properties: list[tuple[str, Any]]) -> None:
        for id in (id for name, ids in properties if name == self.table.marker for id in ids):
            if test not in self.tests.setdefault(id, []):
                self.tests[id].append(test)

    def judge(self, id: str) -> dict[str, str]:
        """The results of the tests of a row, by test function."""
        found: dict[str, str] = {}
        for test in self.tests.get(id, ()):
            name = test.partition("[")[0]
            # One variant that this machine cannot try does not undo the others.
            found[name] = min(found.get(name, "skipped"), self.results.get(test, "not run"), key=VARIANTS.index)
        return found


class Outcome:
    """What became of all rows."""

    def __init__(self, collector: Collector, *, has_run: bool = True) -> None:
        table = collector.table
        self.states: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {}
        """About each row, the first for it alone and one for each of its tests."""
        for row in load_rows(table):
            self.states[row.id] = state = conclude(row, collector.judge(row.id), table.good, has_run=has_run)
            self.lines[row.id] = list(render(row, collector, state, has_run=has_run))
        counts = {state: list(self.states.values()).count(state) for state in dict.fromkeys(self.states.values())}
        self.summary = f"{len(self.states)} {table.noun}s: " + ", ".join(f"{n} {state}" for state, n in counts.items())
        strangers = sorted(id for id in collector.tests if id not in self.states and not id.startswith(table.others))
        self.faults = [f"{id}: no such {table.noun}; carried by {', '.join(collector.tests[id])}" for id in strangers]
        fine = {
            table.good,
            "settled",
            "collected",
            *(["skipped"] if table.may_skip and not os.environ.get("CI") else ()),
        }
        self.faults += [line for id, state in self.states.items() if state not in fine for line in self.lines[id]]


class Gate(Collector):
    """A pytest plugin: judges all rows by a run of all tests, which fails when one has no test that has passed."""

    def __init__(self, table: Table, folder: Path) -> None:
        super().__init__(table)
        self._path = folder / f"{table.name}.txt"
        self._outcome: Outcome | None = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._outcome = outcome = Outcome(self)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line for lines in outcome.lines.values() for line in lines]
        self._path.write_text("\n".join([*lines, "", outcome.summary, ""]), encoding="utf-8")
        if outcome.faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._outcome is not None:
            name, outcome = self.table.name, self._outcome
            for line in (*outcome.faults, f"{name}: {outcome.summary} (all of them: {self._path})"):
                terminalreporter.write_line(line)


def conclude(row: Row, found: dict[str, str], good: str, *, has_run: bool) -> str:
    """What became of a row: the good word, failed, settled, open, skipped or missing."""
    results = set(found.values())
    if found and not has_run:
        return "collected"
    if results & {"failed", "not run"}:
        return "failed"
    if "passed" in results:
        return good
    if row.settled:
        return "settled"
    if results:
        return "skipped"
    return "missing" if row.issue is None else "open"


def render(row: Row, collector: Collector, state: str, *, has_run: bool) -> Iterator[str]:
    """The lines about a row."""
    yield f"{row.id:<13} {state:<10} {row.text}"
    for test, result in collector.judge(row.id).items():
        reason = f" ({collector.reasons.get(test, '')})" if result == "skipped" else ""
        yield f"{'':<24} {result if has_run else 'collected'}: {test}{reason}"
    if row.settled:
        yield f"{'':<24} settled: {row.settled}"
    if state == "open":
        yield f"{'':<24} issue {row.issue}"


def run_table(collector: Collector, flags: list[str], *, has_run: bool, is_short: bool = False) -> tuple[Outcome, bool]:
    """Run the tests of one table, print it, and say whether all is well."""
    how = ["--no-header", "--tb=short", "-n", "2", "--dist", "worksteal"] if has_run else ["--collect-only", "-qqq"]
    status = pytest.main([*how, "-p", "no:cacheprovider", *flags], plugins=[collector])
    outcome = Outcome(collector, has_run=has_run)
    for lines in outcome.lines.values():
        print("\n".join(lines[:1] if is_short else lines))
    print("\n" + "\n".join([*outcome.faults, outcome.summary]))
    return outcome, status == pytest.ExitCode.OK and not outcome.faults

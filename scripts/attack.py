"""For each attack case, the tests that try it and how they went: of a run of its own, or of the ordinary tests.

The cases are in tests/data/attack/cases.toml. A test stands for one by `@pytest.mark.attack("A1")`. Exit status 1 when
such a test fails, names a case that does not exist, when a case has no test, no settlement and no issue, or when a bar
is not met. `--list` only collects, `--quick` leaves the long tests out, and the bars with them, `--landlock` hides
bubblewrap. `make test` makes the same table by the option --attack-table of tests/conftest.py.
"""

import argparse
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from scripts.bars import BARS, Verdict, judge, render_table
from tests.needs import explain_lack

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "data" / "attack" / "cases.toml"
# How the names of bars begin, which tests may carry beside the cases.
BAR_PREFIX = "SEC-"
ORDER = ("failed", "not run", "skipped", "passed")
VARIANTS = ("failed", "not run", "passed", "skipped")
STATES = ("stopped", "collected", "documented", "open", "skipped", "failed", "missing")


class Case(NamedTuple):
    """One attack."""

    id: str
    text: str
    settled: str = ""
    issue: int | None = None


class Collector:
    """A pytest plugin: which tests carry which ids, and how they went. Reports bring both from workers, too."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = {}
        self.results: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.figures: dict[tuple[str, str, str], dict[str, Any]] = {}
        """What tests told about bars, by bar, test and variant."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._note(item.nodeid, item.user_properties)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report.nodeid, report.user_properties)
        outcome = "failed" if report.failed else "skipped" if report.skipped else "passed"
        before = self.results.get(report.nodeid, "passed")
        self.results[report.nodeid] = min(outcome, before, key=ORDER.index)
        for name, figures in report.user_properties:
            if name.startswith(BAR_PREFIX) and isinstance(figures, dict):
                self.figures[name, report.nodeid, str(figures["variant"])] = figures
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.nodeid.partition("[")[0]] = str(report.longrepr[2]).removeprefix("Skipped: ")

    def _note(self, test: str, properties: list[tuple[str, Any]]) -> None:
        for id in (id for name, ids in properties if name == "attack" for id in ids):
            if test not in self.tests.setdefault(id, []):
                self.tests[id].append(test)

    def judge(self, id: str) -> dict[str, str]:
        """The results of the tests of a case, by test function."""
        found: dict[str, str] = {}
        for test in self.tests.get(id, ()):
            name = test.partition("[")[0]
            # One variant that this machine cannot try does not undo the others.
            found[name] = min(found.get(name, "skipped"), self.results.get(test, "not run"), key=VARIANTS.index)
        return found

    def judge_bars(self, states: dict[str, str]) -> dict[str, Verdict]:
        """What became of each bar; the last is about the cases themselves."""
        found: dict[str, Verdict] = {}
        for bar in BARS:
            told = [figures for (id, _, _), figures in self.figures.items() if id == bar.id]
            has_failed = bool({"failed", "not run"} & set(self.judge(bar.id).values()))
            if bar.id == "SEC-12":
                untested = sum(state not in ("stopped", "failed") for state in states.values())
                told = [{"variant": "", "untested": untested, "cases": len(states)}]
            found[bar.id] = judge(bar, told, has_failed=has_failed, lacks=list_lacks())
        return found


class Outcome:
    """What became of all cases."""

    def __init__(self, collector: Collector, *, has_run: bool = True) -> None:
        self.states: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {}
        """About each case, the first for it alone and one for each of its tests."""
        for case in load_cases():
            self.states[case.id] = conclude(case, collector.judge(case.id), has_run=has_run)
            self.lines[case.id] = list(render(case, collector, self.states[case.id], has_run=has_run))
        counts = {state: list(self.states.values()).count(state) for state in STATES}
        self.summary = f"{len(self.states)} cases: " + ", ".join(f"{n} {state}" for state, n in counts.items() if n)
        strangers = sorted(id for id in collector.tests if id not in self.states and not id.startswith(BAR_PREFIX))
        self.faults = [f"{id}: no such case; carried by {', '.join(collector.tests[id])}" for id in strangers]
        # Who has not all programs here may leave a case to CI, which has them.
        bad = ("failed", "missing", *(["skipped"] if os.environ.get("CI") else ()))
        self.faults += [line for id, state in self.states.items() if state in bad for line in self.lines[id]]


class Gate(Collector):
    """A pytest plugin: judges all cases by a run of all tests, which fails when one is not tried or not stopped."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
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
            for line in (*self._outcome.faults, f"attack: {self._outcome.summary} (all of them: {self._path})"):
                terminalreporter.write_line(line)


def list_lacks() -> list[str]:
    """What no test could be tried with here: a user is not root, and a machine may have one kind of sandbox only."""
    kinds = [backend for backend in ("bwrap", "landlock") if explain_lack(backend)]
    return [*(["root"] if os.geteuid() else []), *kinds, *(["no Landlock"] if "bwrap" in kinds else [])]


def hide_bwrap(arguments: list[str]) -> NoReturn:
    """Begin anew where nobody finds a bubblewrap that works."""
    program = os.path.realpath(shutil.which("bwrap") or "/usr/bin/bwrap")
    hidden = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", program, "--"]
    os.execvp("bwrap", [*hidden, sys.executable, "-m", "scripts.attack", *arguments])


def load_cases(path: Path = TABLE) -> list[Case]:
    """The table, in its order."""
    table: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Case(id, item["text"], str(item.get("settled", "")), item.get("issue")) for id, item in table.items()]


def conclude(case: Case, found: dict[str, str], *, has_run: bool) -> str:
    """What became of a case: stopped, failed, skipped, open, settled or missing."""
    results = set(found.values())
    if found and not has_run:
        return "collected"
    if results & {"failed", "not run"}:
        return "failed"
    if "passed" in results:
        return "stopped"
    if case.settled:
        return "documented"
    if case.issue is not None:
        return "open"
    return "skipped" if results else "missing"


def render(case: Case, collector: Collector, state: str, *, has_run: bool) -> Iterator[str]:
    """The lines about a case."""
    yield f"{case.id:<4} {state:<10} {case.text}"
    for test, result in collector.judge(case.id).items():
        reason = f" ({collector.reasons.get(test, '')})" if result == "skipped" else ""
        yield f"{'':<15} {result if has_run else 'collected'}: {test}{reason}"
    if state == "documented":
        yield f"{'':<15} {case.settled}"
    if state == "open":
        yield f"{'':<15} issue {case.issue}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="only collect")
    parser.add_argument("--quick", action="store_true", help="leave the long tests out")
    parser.add_argument("--short", action="store_true", help="one line a case")
    parser.add_argument("--landlock", action="store_true", help="on a machine like this one without bubblewrap")
    parser.add_argument("paths", nargs="*", default=["tests"])
    options = parser.parse_args(arguments)
    if options.landlock:
        hide_bwrap([word for word in (arguments or sys.argv[1:]) if word != "--landlock"])
    collector, has_run = Collector(), not options.list
    flags = ["--no-header", "--tb=short", "--timeout", "600", "-n", "2", "--dist", "worksteal"]
    chosen = ["-m", "attack and not slow" if options.quick else "attack", "-p", "no:cacheprovider"]
    flags = flags if has_run else ["--collect-only", "-qqq"]
    status = pytest.main([*flags, *chosen, *options.paths], plugins=[collector])
    outcome = Outcome(collector, has_run=has_run)
    for lines in outcome.lines.values():
        print("\n".join(lines[:1] if options.short else lines))
    print("\n" + "\n".join([*outcome.faults, outcome.summary]))
    is_short = False
    if has_run and not options.quick:
        verdicts = collector.judge_bars(outcome.states)
        is_short = not all(verdict.is_met for verdict in verdicts.values())
        print("\n" + "\n".join(render_table(verdicts)))
    return 1 if status != pytest.ExitCode.OK or outcome.faults or is_short else 0


if __name__ == "__main__":
    sys.exit(main())

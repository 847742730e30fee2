"""Runs the attack suite and prints, for each case, the tests that try it and how they went.

The cases are in tests/data/attack/cases.toml. A test stands for one by `@pytest.mark.attack("A1")`. Exit status 1 when
such a test fails, names a case that does not exist, when a case has no test, no settlement and no issue, or when a bar
is not met. `--list` only collects, `--quick` leaves the long tests out, and the bars with them.
"""

import argparse
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bars import BARS, Verdict, judge, render_table

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "data" / "attack" / "cases.toml"
# How the names of bars begin, which tests may carry beside the cases.
BAR_PREFIX = "SEC-"
ORDER = ("failed", "not run", "skipped", "passed")


class Case(NamedTuple):
    """One attack."""

    id: str
    text: str
    settled: str = ""
    issue: int | None = None


class Collector:
    """A pytest plugin: which tests carry which ids, and how they went."""

    def __init__(self, *, is_quick: bool = False) -> None:
        self._is_quick = is_quick
        self.tests: dict[str, list[str]] = {}
        self.results: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.left_out: set[str] = set()
        """Cases that have long tests, which were not asked for."""
        self.figures: dict[tuple[str, str, str], dict[str, Any]] = {}
        """What tests told about bars, by bar, test and variant; a second try replaces the first."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = []
        for item in items:
            ids = [id for mark in item.iter_markers("attack") for id in mark.args]
            if ids and self._is_quick and item.get_closest_marker("slow"):
                self.left_out.update(ids)
            elif ids:
                chosen.append(item)
                for id in ids:
                    self.tests.setdefault(id, []).append(item.nodeid)
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = "failed" if report.failed else "skipped" if report.skipped else "passed"
        before = self.results.get(report.nodeid, "passed")
        self.results[report.nodeid] = min(outcome, before, key=ORDER.index)
        for name, figures in report.user_properties:
            if name.startswith(BAR_PREFIX) and isinstance(figures, dict):
                self.figures[name, report.nodeid, str(figures["variant"])] = figures
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.nodeid.partition("[")[0]] = str(report.longrepr[2]).removeprefix("Skipped: ")

    def judge(self, id: str) -> dict[str, str]:
        """The results of the tests of a case, by test function."""
        found: dict[str, str] = {}
        for test in self.tests.get(id, ()):
            name = test.partition("[")[0]
            found[name] = min(found.get(name, "passed"), self.results.get(test, "not run"), key=ORDER.index)
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
            found[bar.id] = judge(bar, told, has_failed=has_failed)
        return found


class Results:
    """A pytest plugin: hands the results on, and nothing else."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._collector.pytest_runtest_logreport(report)


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
    parser.add_argument("paths", nargs="*", default=["tests"])
    options = parser.parse_args(arguments)
    # An attack that works one time in three works: nothing is tried again.
    os.environ["RERUNS"] = "0"
    cases, collector, has_run = load_cases(), Collector(is_quick=options.quick), not options.list
    collect = ["--collect-only", "-qqq", "-p", "no:cacheprovider", *options.paths]
    status = pytest.main(collect, plugins=[collector])
    if has_run and status == pytest.ExitCode.OK:
        chosen = "attack and not slow" if options.quick else "attack"
        # Workers collect for themselves, so what stands for what was found out before.
        flags = ["-q", "--no-header", "--tb=short", "--timeout", "600", "-n", "2", "--dist", "worksteal", "-m", chosen]
        status = pytest.main([*flags, "-p", "no:cacheprovider", *options.paths], plugins=[Results(collector)])
    states: dict[str, str] = {}
    for case in cases:
        states[case.id] = conclude(case, collector.judge(case.id), has_run=has_run)
        if states[case.id] == "missing" and case.id in collector.left_out:
            states[case.id] = "left out"
        for line in render(case, collector, states[case.id], has_run=has_run):
            if not options.short or line.startswith(case.id):
                print(line)
    strangers = sorted(id for id in collector.tests if id not in states and not id.startswith(BAR_PREFIX))
    for id in strangers:
        print(f"{id}: no such case; carried by {', '.join(collector.tests[id])}")
    known = ("stopped", "collected", "documented", "open", "left out", "skipped", "failed", "missing")
    counts = {state: sum(1 for found in states.values() if found == state) for state in known}
    print(f"\n{len(cases)} cases: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))
    is_short = False
    if has_run and not options.quick:
        verdicts = collector.judge_bars(states)
        is_short = not all(verdict.is_met for verdict in verdicts.values())
        print("\n" + "\n".join(render_table(verdicts)))
    is_broken = status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return 1 if counts["failed"] or counts["missing"] or strangers or is_broken or is_short else 0


if __name__ == "__main__":
    sys.exit(main())

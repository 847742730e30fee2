"""For each attack case, the tests that try it and how they went, and what was measured for the bars.

The cases are in tests/data/attack/cases.toml. Exit status 1 when such a test fails, names a case that does not exist,
when a case has no test and no settlement, or when a bar is not met. `--list` only collects, `--quick` leaves the long
tests out, and the bars with them, `--landlock` hides bubblewrap. `make test` makes the same table, without the bars.
"""

import argparse
import os
import shutil
import sys
from typing import Any, NoReturn

import pytest

from scripts.bars import BARS, Verdict, judge, render_table
from scripts.tables import ATTACK, Collector, run_table
from tests.needs import explain_lack


class BarCollector(Collector):
    """The collector that also keeps what tests measure."""

    def __init__(self) -> None:
        super().__init__(ATTACK)
        self.figures: dict[tuple[str, str, str], dict[str, Any]] = {}
        """What tests told about bars, by bar, test and variant."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        super().pytest_runtest_logreport(report)
        for name, figures in report.user_properties:
            if name.startswith(ATTACK.others) and isinstance(figures, dict):
                self.figures[name, report.nodeid, str(figures["variant"])] = figures

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


def list_lacks() -> list[str]:
    """What no test could be tried with here: a user is not root, and a machine may have one kind of sandbox only."""
    kinds = [backend for backend in ("bwrap", "landlock") if explain_lack(backend)]
    return [*(["root"] if os.geteuid() else []), *kinds, *(["no Landlock"] if "bwrap" in kinds else [])]


def hide_bwrap(arguments: list[str]) -> NoReturn:
    """Begin anew where nobody finds a bubblewrap that works."""
    program = os.path.realpath(shutil.which("bwrap") or "/usr/bin/bwrap")
    hidden = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", program, "--"]
    os.execvp("bwrap", [*hidden, sys.executable, "-m", "scripts.attack", *arguments])


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
    collector, has_run = BarCollector(), not options.list
    chosen = ["-m", "attack and not slow" if options.quick else "attack", "--timeout", "600"]
    outcome, is_well = run_table(collector, [*chosen, *options.paths], has_run=has_run, is_short=options.short)
    if has_run and not options.quick:
        verdicts = collector.judge_bars(outcome.states)
        is_well = is_well and all(verdict.is_met for verdict in verdicts.values())
        print("\n" + "\n".join(render_table(verdicts)))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

"""Records which lines of the mutated packages each test executes, in the test process and in all it starts.

`scripts/mutants.py` puts this file into the environment of its copy of the project, where a `.pth` file starts it in
every interpreter. It must not import anything of the project. PYTEST_DONT_REWRITE: it is imported before pytest.
"""

import json
import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = os.path.abspath(os.path.join(sys.prefix, ".."))
PLACE = os.path.join(ROOT, "trace")
SOURCES = tuple(os.path.join(ROOT, "src", "retinue", *part.split("/")) for part in ("engine", "sessions", "sandbox"))
SOURCES += (os.path.join(ROOT, "src", "retinue", "tools", "policy.py"),)


class Recorder:
    """Writes each line once for each test; a fork goes on in a file of its own."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()
        self._test = ""
        self.is_long_lived = False
        self.begin()

    def begin(self, test: str = "") -> None:
        """Count what follows for this test, or for the one that is running when this process begins."""
        current = os.path.join(PLACE, "current")
        if self.is_long_lived:
            self._write(self._seen)
        with suppress(OSError):
            if test:
                Path(current).write_text(test, encoding="utf-8")
            else:
                test = Path(current).read_text(encoding="utf-8")
        self._test = test
        self._seen.clear()

    def begin_fork(self) -> None:
        """A process of its own may be killed at any time, and writes at once."""
        self.is_long_lived = False
        self.begin()

    def enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self.see if frame.f_code.co_filename.startswith(SOURCES) else None

    def see(self, frame: FrameType, event: str, argument: object) -> Any:
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line not in self._seen:
            self._seen.add(line)
            if not self.is_long_lived:
                self._write([line])
        return self.see

    def _write(self, lines: Iterable[tuple[str, int]]) -> None:
        # Never through a file that stays open: a program may close its number and open another file under it.
        rows = [f"{self._test}\t{path[len(ROOT) + 1 :]}\t{number}\n" for path, number in lines]
        with suppress(OSError), open(os.path.join(PLACE, f"{os.getpid()}.lines"), "a", encoding="utf-8") as file:
            file.write("".join(rows))


recorder: Recorder | None = None
_results: dict[str, tuple[bool, float]] = {}


def start() -> None:
    """Record in this process when a recording is wanted."""
    global recorder
    if os.path.isdir(PLACE):
        recorder = Recorder()
        os.register_at_fork(after_in_child=recorder.begin_fork)
        threading.settrace(recorder.enter)
        sys.settrace(recorder.enter)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """The same test with another runner takes longer and runs the same code."""
    runners = [getattr(item, "callspec", None) and item.callspec.params.get("crew_runner") for item in items]
    items[:] = [item for item, runner in zip(items, runners, strict=True) if runner in (None, "inprocess")]


def pytest_runtest_logstart(nodeid: str) -> None:
    _results[nodeid] = (True, 0.0)
    if recorder is not None:
        recorder.is_long_lived = True
        # Hypothesis ends tracing with its own.
        sys.settrace(recorder.enter)
        recorder.begin(str(len(_results) - 1))


def pytest_runtest_logreport(report: Any) -> None:
    is_good, duration_s = _results[report.nodeid]
    is_good = is_good and (report.passed if report.when == "call" else not report.failed and not report.skipped)
    _results[report.nodeid] = (is_good, duration_s + report.duration)


def pytest_sessionfinish() -> None:
    if recorder is not None:
        recorder.begin("end")
    with open(os.path.join(PLACE, "tests.json"), "w", encoding="utf-8") as file:
        json.dump([[test, *result] for test, result in _results.items()], file)

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from retinue.core.events import MessageFinished, RunForgotten, RunQueued
from retinue.core.messages import CustomMessage
from retinue.core.run import Run, Status
from retinue.engine.bus import Bus
from retinue.engine.cleanup import KEEP_S, RunCleanup
from retinue.engine.notify import CUSTOM_TYPE
from retinue.testing.clock import FakeClock

START_MS = FakeClock().now_ms()


def make(run_id: str = "a", age_s: float = KEEP_S, **fields: Any) -> Run:
    """A run that ended so long ago."""
    fields = {"parent_id": "main", "depth": 1, "status": Status.COMPLETED, **fields}
    return Run(id=run_id, agent="a", description="d", finished_ms=START_MS - round(age_s * 1000), **fields)


class Crew:
    """As much of a manager and of a backend as is looked at."""

    def __init__(self, *runs: Run) -> None:
        self.root = SimpleNamespace(bus=Bus())
        self.runs = {run.id: run for run in runs}
        self.works: list[Coroutine[Any, Any, None]] = []
        self.clock = FakeClock(auto=True)
        self.retention = RunCleanup(self, self, self.clock)  # type: ignore[arg-type]

    def list_runs(self) -> list[Run]:
        return list(self.runs.values())

    def find(self, run_id: str) -> Run | None:
        return self.runs.get(run_id)

    def forget(self, run_id: str) -> None:
        del self.runs[run_id]
        self.root.bus.publish(RunForgotten(run_id=run_id))

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.works.append(work)

    def report(self, run_id: str, attempt: int, kind: str = CUSTOM_TYPE) -> None:
        details = {"id": run_id, "attempt": attempt}
        message = CustomMessage(kind, "", True, 0, details=details)
        self.root.bus.publish(MessageFinished(run_id="main", message=message))

    def queue(self, run: Run) -> None:
        self.runs[run.id] = run
        self.root.bus.publish(RunQueued(run_id=run.id, run=run, request={}))


PARENT = make("p", 0, status=Status.RUNNING)


@pytest.mark.parametrize(
    ("run", "stays"),
    [
        (make(is_read=True), False),
        (make(is_read=True, age_s=KEEP_S - 0.1), True),
        (make(is_read=True, status=Status.RUNNING), True),
        (make(), True),
        (make(is_background=False), False),
        (make(parent_id="p", depth=2), True),
        (make(parent_id="gone", depth=2), False),
        (make(parent_id="gone", depth=1), True),
    ],
    ids=["read", "young", "working", "unread", "waited for", "parent works", "parent is gone", "of the main agent"],
)
def test_known_old_run_is_forgotten(run: Run, stays: bool) -> None:
    crew = Crew(PARENT, run)
    crew.retention.sweep()
    assert ("a" in crew.runs) is stays


@pytest.mark.parametrize(
    ("attempt", "kind", "stays"), [(2, CUSTOM_TYPE, False), (1, CUSTOM_TYPE, True), (2, "other", True)]
)
def test_run_that_was_told_is_forgotten(attempt: int, kind: str, stays: bool) -> None:
    crew = Crew(make(attempt=2))
    crew.report("a", attempt, kind)
    crew.retention.sweep()
    assert ("a" in crew.runs) is stays


def test_run_that_comes_again_is_told_again() -> None:
    crew = Crew(make())
    crew.report("a", 1)
    crew.forget("a")
    crew.runs["a"] = make()
    crew.retention.sweep()
    assert "a" in crew.runs


def test_runs_of_an_earlier_process_were_told() -> None:
    untold, young = make("b"), make("c", 0)
    crew = Crew(make("a"), untold, young, make("d", status=Status.RUNNING))
    crew.retention.open([untold])
    assert (list(crew.runs), len(crew.works)) == (["b", "c", "d"], 1)
    crew.works[0].close()


async def test_looks_while_there_are_runs() -> None:
    crew = Crew()
    crew.retention.open()
    assert (crew.works, crew.root.bus.is_watched) == ([], False)
    for run_id in ("a", "b"):
        crew.queue(make(run_id, 0, is_read=True))
    for turn in (1, 2):
        assert len(crew.works) == turn
        await crew.works[-1]
        assert (crew.runs, sum(crew.clock.slept)) == ({}, KEEP_S if turn == 1 else KEEP_S + 60)
        crew.queue(make("c", is_read=True))
    crew.works[-1].close()

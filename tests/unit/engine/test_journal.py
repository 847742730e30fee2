from pathlib import Path

import pytest

from retinue.core.events import RunFinished, RunQueued, RunStarted
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.journal import CREW, RECORD, Journal
from retinue.engine.recovery import read_remains
from retinue.sessions.files import Files
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock


class Counting(Files):
    writes = 0

    def write(self, fd: int, data: bytes) -> int:
        self.writes += 1
        return super().write(fd, data)


@pytest.mark.parametrize("task", ["look", "sieh nach: \u2028 ü", "x" * 2_000_000])
def test_request_of_any_length_is_read_again(tmp_path: Path, task: str) -> None:
    session = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "m")
    run = Run(id="r", parent_id="m", depth=1, agent="a", description="d")
    request = {"agent": "a", "task": task, "description": "d", "surface": "fleet"}
    Journal("m", session, lambda text: None)(RunQueued(run_id="r", run=run, request=request))
    assert read_remains(session.customs(CREW)).requests["r"].task == task
    session.close()


def test_run_is_recorded_as_it_was(tmp_path: Path) -> None:
    session = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "m")
    run = Run(id="r", parent_id="m", depth=1, agent="a", description="before")
    request = {"agent": "a", "task": "t", "description": "d", "surface": "fleet"}
    journal = Journal("m", session, lambda text: None)
    session.read_only = "of a test"
    journal(RunQueued(run_id="r", run=run, request=request))
    run.description, session.read_only = "after", ""
    journal.flush()
    assert read_remains(session.customs(CREW)).runs["r"].description == "before"
    session.close()


def test_ends_that_come_together_are_one_write(tmp_path: Path) -> None:
    files = Counting()
    session = Session.create(
        cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "m", tree=SessionTree(files)
    )
    session.append_custom("any", None)
    outcome, before = Outcome(Status.STOPPED, Reason.USER), files.writes
    ends = [RunFinished(run_id=f"r{number}", outcome=outcome, at_ms=1) for number in range(500)]
    Journal("m", session, lambda text: None).record_all([*ends, RunStarted(run_id="m", at_ms=1)])
    told = [record["id"] for record in session.customs(RECORD)]
    assert (files.writes - before, told, len(session)) == (1, [end.run_id for end in ends], 1001)
    session.close()


def test_pending_entries_are_written_in_order(tmp_path: Path) -> None:
    session = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "m")
    told: list[str] = []
    journal = Journal("m", session, told.append)
    session.read_only = "of a test"
    for number in range(3):
        assert journal.write(lambda number=number: session.append_custom("any", number)) == ""  # type: ignore[misc]
    session.read_only = ""
    assert (journal.is_saved, bool(journal.flush()), journal.is_saved) == (False, True, True)
    assert (list(session.customs("any")), len(told)) == ([0, 1, 2], 1)
    session.close()

from pathlib import Path

import pytest

from retinue.core.events import RunQueued
from retinue.core.run import Run
from retinue.engine.journal import CREW, Journal
from retinue.engine.recovery import read_remains
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock


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

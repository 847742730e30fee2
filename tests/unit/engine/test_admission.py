from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.events import RunFinished, RunStarted
from retinue.core.run import Grant, Outcome, Reason, Status
from retinue.engine.admission import Admission, SpawnRefused, to_request
from retinue.engine.bus import Bus
from retinue.engine.limits import Bounds, Limits
from retinue.engine.request import RunRequest
from retinue.engine.run_table import RunTable
from retinue.testing.clock import FakeClock

REQUEST = RunRequest(agent="a", task="look", description="d", surface="fleet", preface="Before. ")
READS = Grant(("read",), True)


class Door:
    def __init__(self, main=None, **bounds):
        self.runs = RunTable("main", Bus())
        numbers = iter(range(9))
        self.admission = Admission(Bounds(**bounds), self.runs, FakeClock(), lambda: f"r{next(numbers)}", main)

    def let_in(self, request=REQUEST, parent="main"):
        run, request = self.admission.admit(request, parent, lambda run_id: READS)
        self.runs.add(run, request)
        return run

    def end(self, run, **fields):
        outcome = Outcome(Status.COMPLETED, Reason.DONE, **fields)
        self.runs.tell(RunFinished(run_id=run.id, outcome=outcome, at_ms=1))


def test_extra_depth_counts_below_too():
    door = Door(max_depth=3)
    above = door.let_in(replace(REQUEST, extra_depth=1))
    below = door.let_in(parent=above.id)
    assert [(run.depth, run.extra_depth, run.grant) for run in (above, below)] == [(1, 1, READS), (2, 1, READS)]
    with pytest.raises(SpawnRefused, match="maximum recursive subagent depth is 3"):
        door.let_in(parent=below.id)


def test_refused_run_is_not_counted():
    door = Door(max_depth=1, max_spawns=2)
    above = door.let_in()
    with pytest.raises(SpawnRefused, match="depth"):
        door.let_in(parent=above.id)
    door.let_in()
    with pytest.raises(SpawnRefused, match="has started 2 runs"):
        door.let_in()


def test_run_in_a_folder_has_a_file():
    run, request = Door().admission.admit(replace(REQUEST, session_dir="/s"), "main", lambda run_id: None)
    assert (run.id, request.session_file) == ("r0", "/s/r0.jsonl")


@pytest.mark.parametrize(
    ("is_unbegun", "expected"), [(False, ("more", "")), (True, ("look\n\nmore", "Before. "))], ids=["begun", "unbegun"]
)
def test_unbegun_run_keeps_its_task(is_unbegun, expected):
    door = Door()
    run = door.let_in()
    door.end(run, is_unbegun=is_unbegun)
    again, request = door.admission.readmit(run.id, "more", "")
    assert (again.attempt, request.task, request.preface) == (2, *expected)


def test_only_finished_runs_are_readmitted():
    door = Door()
    run = door.let_in()
    with pytest.raises(SpawnRefused, match="is still queued"):
        door.admission.readmit(run.id, "more", "")
    with pytest.raises(SpawnRefused, match="not found"):
        door.admission.readmit("nobody", "more", "")


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ({"session_dir": "/s"}, ["/s/r0.jsonl", "/s/r0/r1/session.jsonl", "/s/r0/r2/session.jsonl"]),
        ({"session_file": "/m/r0/session-attempt-2.jsonl"}, ["/m/r0/session-attempt-2.jsonl", "", ""]),
        ({"keeps_session": False}, ["", "", ""]),
        ({}, ["", "", ""]),
    ],
)
def test_runs_below_lie_beside_their_parent(above, expected):
    door = Door(main=Path("/m.jsonl"))
    first = door.let_in(replace(REQUEST, **above))
    second = door.let_in(parent=first.id)
    runs = (first, second, door.let_in(parent=second.id))
    assert [door.runs.find_request(run.id).session_file for run in runs] == expected


def test_crew_has_bounds_when_nobody_says_any():
    bounds = Bounds()
    assert (bounds.max_concurrent, bounds.max_depth, bounds.max_spawns) == (4, 4, 200)


def test_each_prompt_may_start_as_many():
    door = Door(max_spawns=1)
    door.let_in()
    with pytest.raises(SpawnRefused, match="has started 1 runs"):
        door.let_in()
    assert door.let_in(replace(REQUEST, skips_queue=True)).depth == 1
    door.admission.begin_prompt()
    door.let_in()
    with pytest.raises(SpawnRefused, match="has started 1 runs"):
        door.let_in()


def test_request_without_task_is_refused():
    door = Door()
    run = door.let_in()
    door.end(run)
    with pytest.raises(SpawnRefused, match="Cannot spawn agent: "):
        door.let_in(replace(REQUEST, task=" "))
    with pytest.raises(SpawnRefused, match="Cannot spawn agent: "):
        door.admission.readmit(run.id, " ", "")


def test_fields_make_a_request():
    fields = {"agent": "a", "task": "t", "description": "d", "surface": "s"}
    made = to_request({**fields, "tokens": 5}, Limits(tokens=9, wall_s=2))
    assert made == RunRequest(**fields, limits=Limits(tokens=5, wall_s=2))
    with pytest.raises(SpawnRefused, match="Cannot spawn agent: tokens is '-1'"):
        to_request({**fields, "tokens": -1}, Limits())


def test_run_has_what_was_asked_for():
    asked = replace(REQUEST, call_id="c", join="group", is_background=False, transcript_dir="/t", invocation={"a": 1})
    run, plain = (Door().admission.admit(each, "main", lambda run_id: None)[0] for each in (asked, REQUEST))
    assert (run.call_id, run.join, run.is_background, run.invocation) == ("c", "group", False, {"a": 1})
    assert (run.output_file, plain.output_file, plain.is_background) == ("/t/agent-r0.jsonl", "", True)
    assert (run.agent, run.description, run.surface, run.queued_ms) == ("a", "d", "fleet", FakeClock().now_ms())


@pytest.mark.parametrize(
    ("is_unbegun", "file", "started_ms"), [(False, "", 5), (True, "", 0), (False, "/other.jsonl", 0)]
)
def test_resumed_run_begins_anew_where_nothing_was(is_unbegun, file, started_ms):
    door = Door()
    run = door.let_in(replace(REQUEST, session_file="/own.jsonl"))
    door.runs.tell(RunStarted(run_id=run.id, at_ms=5))
    door.end(run, is_unbegun=is_unbegun)
    again, request = door.admission.readmit(run.id, "more", file)
    assert (again.started_ms, request.session_file) == (started_ms, file or "/own.jsonl")


def test_run_without_session_has_no_file():
    request = replace(REQUEST, session_dir="/s", keeps_session=False)
    assert Door().admission.find_file(request, "main", "r") == ""
    assert Door().admission.find_file(replace(REQUEST, session_dir="/s", session_file="/f"), "main", "r") == ""

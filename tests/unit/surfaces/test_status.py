import pytest

from retinue.core.messages import Usage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.surfaces.fleet.status import explain_error, label_status, note_status, roll_up, to_word


def make_run(status, reason=None, error="", **fields):
    outcome = None if reason is None else Outcome(status, reason, error=error)
    facts = {"id": "r", "parent_id": "m", "depth": 1, "agent": "a", "description": "d", **fields}
    return Run(status=status, outcome=outcome, **facts)


@pytest.mark.spec("fleet:B51")
@pytest.mark.parametrize(
    ("status", "reason", "word", "label"),
    [
        (Status.QUEUED, None, "queued", "Queued"),
        (Status.RUNNING, None, "running", "Running"),
        (Status.COMPLETED, Reason.DONE, "completed", "Done"),
        (Status.COMPLETED, Reason.LENGTH, "completed", "Done"),
        (Status.COMPLETED, Reason.TURN_LIMIT_WRAPPED, "steered", "Wrapped up (turn limit)"),
        (Status.STOPPED, Reason.TURN_LIMIT, "aborted", "Aborted (max turns exceeded)"),
        (Status.STOPPED, Reason.USER, "stopped", "Stopped"),
        (Status.STOPPED, Reason.PARENT, "stopped", "Stopped"),
        (Status.STOPPED, Reason.WALL_TIMEOUT, "error", "Error: the time limit of the run was reached"),
        (Status.STOPPED, Reason.IDLE_TIMEOUT, "error", "Error: nothing happened for too long (idle limit)"),
        (Status.STOPPED, Reason.BUDGET, "error", "Error: the budget is spent"),
        (Status.INTERRUPTED, Reason.CRASH, "error", "Error: the run broke off"),
        (Status.INTERRUPTED, Reason.PARENT, "error", "Error: the run was interrupted"),
        (Status.FAILED, Reason.ERROR, "error", "Error: unknown error"),
    ],
)
def test_every_end_has_a_word(status, reason, word, label):
    run = make_run(status, reason)
    assert (to_word(run), label_status(run)) == (word, label)


def test_queued_again_forgets_how_it_ended():
    run = make_run(Status.QUEUED, Reason.USER)
    assert (to_word(run), note_status(run), explain_error(run)) == ("queued", "", "")


def test_only_the_user_is_blamed_for_stopping():
    notes = [note_status(make_run(Status.STOPPED, reason)) for reason in (Reason.USER, Reason.PARENT)]
    assert ["USER" in note for note in notes] == [True, False]
    assert all("NOT finished" in note for note in notes)


def test_error_text_is_the_runs_own():
    assert explain_error(make_run(Status.FAILED, Reason.ERROR, "no key")) == "no key"


def test_usage_rolls_up_through_broken_chains():
    runs = [
        make_run(Status.RUNNING, id="a", usage=Usage(1)),
        make_run(Status.RUNNING, id="b", parent_id="a", usage=Usage(10)),
        make_run(Status.RUNNING, id="c", parent_id="b", usage=Usage(100)),
        make_run(Status.RUNNING, id="x", parent_id="y", usage=Usage(5)),
        make_run(Status.RUNNING, id="y", parent_id="x", usage=Usage(7)),
    ]
    totals = {run_id: usage.input for run_id, usage in roll_up(runs).items()}
    assert totals == {"a": 111, "b": 110, "c": 100, "x": 12, "y": 12}

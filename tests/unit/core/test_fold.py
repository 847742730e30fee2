from retinue.core.events import RunPlaced, RunQueued, TurnStarted
from retinue.core.fold import fold
from retinue.core.run import Run


def make_run() -> Run:
    return Run(id="r", parent_id="m", depth=1, agent="a", description="d")


def test_run_waits_then_works_elsewhere():
    run, seen = make_run(), []
    for event in (RunPlaced(run_id="r"), RunPlaced(run_id="r", worker="box-1"), TurnStarted(run_id="r", turn=1)):
        fold(run, event)
        seen.append((run.worker, run.activity))
    assert seen == [("", "waiting for a worker"), ("box-1", ""), ("box-1", "thinking")]


def test_queued_again_has_no_worker():
    run = make_run()
    run.worker = "box-1"
    fold(run, RunQueued(run_id="r", run=make_run(), request={}))
    assert run.worker == ""

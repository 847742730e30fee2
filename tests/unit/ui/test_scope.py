from retinue.core.run import Run, Status
from retinue.ui.scope import count_working, describe_runs, describe_scope


def test_scope_counts_what_works():
    runs = [
        Run(id=str(status), parent_id="m", depth=1, agent="a", description="d", status=status)
        for status in (Status.RUNNING, Status.QUEUED, Status.COMPLETED, Status.STOPPED)
    ]
    assert count_working(runs) == 2


def test_scope_reads_like_a_sentence():
    assert [describe_scope(count) for count in (0, 1, 3)] == [
        "stops the agent",
        "stops the agent and 1 run",
        "stops the agent and 3 runs",
    ]
    assert describe_runs(1) == "1 run"

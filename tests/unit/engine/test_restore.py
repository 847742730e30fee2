from retinue.core.run import Run
from retinue.engine.recovery import ResumableRuns


def build(run_id, parent_id):
    return Run(id=run_id, parent_id=parent_id, depth=1, agent="a", description="d", surface="fleet")


def test_run_waits_for_its_parent():
    returning, above, below = ResumableRuns(), build("a", "main"), build("b", "a")
    assert (returning.add(above), returning.add(below)) == (True, False)
    assert (returning.settle("a"), "a" in returning, "b" in returning) == ([below], False, True)


def test_parent_at_work_is_not_waited_for():
    returning, above, below = ResumableRuns(), build("a", "main"), build("b", "a")
    returning.add(above)
    returning.settle("a")
    assert (returning.add(below), list(returning.settle("b"))) == (True, [])


def test_unknown_run_keeps_nobody_waiting():
    assert list(ResumableRuns().settle("a")) == []

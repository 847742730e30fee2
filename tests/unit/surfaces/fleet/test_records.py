from retinue.core.events import ScheduleChanged
from retinue.surfaces.fleet.records import LifecycleRecords


def test_late_fire_says_so():
    tell = LifecycleRecords(lambda run_id: None)
    fired = ScheduleChanged(run_id="s", change="fired", job_id="j", job={"name": "tick"}, agent_id="r")
    late = ScheduleChanged(run_id="s", change="fired", job_id="j", job={"name": "tick"}, agent_id="r", note="late")
    record = {"type": "subagents:scheduled", "change": "fired", "jobId": "j", "agentId": "r", "name": "tick"}
    assert (tell(fired), tell(late)) == (record, {**record, "note": "late"})

import json
import time
from pathlib import Path

import pytest

from retinue.core.errors import UsageError
from retinue.core.run import Status
from retinue.features.schedule.job import Job, to_entry
from retinue.features.schedule.scheduler import LOOK_S, JobChange
from retinue.features.schedule.store import ScheduleStore
from tests.flows.schedule_world import DAY, HOUR, MINUTE, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.spec("fleet:B84")
async def test_single_time_disables_itself(world: World) -> None:
    async with world.running():
        job = world.make("+10m", "a")
        world.scheduler.add(job)
        assert world.spawned == []
        await world.clock.advance(10 * MINUTE)
        await world.end("r1")
        await world.clock.advance(DAY)
    assert world.spawned == [("a", "2026-06-01T12:10:00")]
    stored = json.loads(world.store.path.read_text())["jobs"][0]
    assert (stored["enabled"], stored["lastStatus"], stored["lastRun"]) == (
        False,
        "success",
        "2026-06-01T12:10:00.000Z",
    )
    assert "nextRun" not in stored


@pytest.mark.spec("fleet:B88")
@pytest.mark.parametrize("text", ["+30d", "30d", "2026-07-01T12:00:00Z"])
async def test_far_dates_wait(world: World, text: str) -> None:
    async with world.running():
        world.scheduler.add(world.make(text, "a"))
        await world.clock.advance(MINUTE)
        world.clock.set_by_s = 30 * DAY - 3 * MINUTE
        await world.clock.advance(MINUTE)
        assert world.spawned == []
        await world.clock.advance(MINUTE)
    assert world.spawned == [("a", "2026-07-01T12:00:00")]


async def test_interval_keeps_its_beat(world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("5m", "a"))
        for run_id in ("r1", "r2"):
            await world.clock.advance(4 * MINUTE + 50)
            await world.clock.advance(30)
            await world.end(run_id)
    assert world.spawned == [("a", "2026-06-01T12:05:00"), ("a", "2026-06-01T12:10:00")]


@pytest.mark.spec("fleet:B85")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.COMPLETED, "success"),
        (Status.FAILED, "error"),
        (Status.STOPPED, "error"),
        (Status.INTERRUPTED, "error"),
    ],
)
async def test_last_status_follows_run(world: World, status: Status, expected: str) -> None:
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        await world.clock.advance(HOUR)
        running = world.store.find("a")
        await world.clock.advance(90)
        await world.end("r1", status)
    job = world.store.find("a")
    assert running is not None and job is not None
    assert (running.last_status, running.last_run, running.runs) == ("running", "2026-06-01T13:00:00.000Z", 0)
    assert (job.last_status, job.last_run, job.runs) == (expected, "2026-06-01T13:01:30.000Z", 1)
    assert job.next_run == running.next_run == "2026-06-01T14:00:00.000Z"


async def test_changes_are_announced(tmp_path: Path, world: World) -> None:
    async with world.running():
        job = world.make("1h", "a")
        world.scheduler.add(job)
        await world.clock.advance(HOUR)
        fired = world.changes[-1]
        await world.end("r1")
        ScheduleStore(tmp_path, "s1").remove("a")
        await world.clock.advance(LOOK_S)
    assert fired == JobChange("fired", "a", fired.job, run_id="r1")
    assert world.kinds() == ["added", "updated", "fired", "updated", "removed"]


async def test_failed_spawn_is_recorded(world: World) -> None:
    world.refuse = lambda job: "no such agent"
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        await world.clock.advance(HOUR)
        job = world.store.find("a")
        assert job is not None and (job.last_status, job.runs) == ("error", 0)
        assert [change.error for change in world.changes if change.kind == "error"] == ["no such agent"]
        world.refuse = lambda job: ""
        await world.clock.advance(HOUR)
    assert world.spawned == [("a", "2026-06-01T14:00:00")]


async def test_job_never_overlaps_itself(world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("5m", "a"))
        world.scheduler.add(world.make("0 */5 * * * *", "b"))
        await world.clock.advance(5 * MINUTE)
        await world.clock.advance(17 * MINUTE)
        assert len(world.spawned) == 2
        await world.end_all()
        assert len(world.spawned) == 2
        await world.clock.advance(3 * MINUTE)
    assert world.spawned == [(name, f"2026-06-01T12:{minute}:00") for minute in ("05", "25") for name in "ab"]


async def test_thousand_fires_obey_cap(tmp_path: Path) -> None:
    world = World(tmp_path)
    jobs = [world.make("+10m", f"j{number:03}") for number in range(1000)]
    write_jobs(world, jobs)
    async with world.running():
        await world.clock.advance(10 * MINUTE)
        assert [name for name, _ in world.spawned] == ["j000", "j001", "j002", "j003"]
        while len(world.spawned) < 1000:
            await world.end_all()
        await world.end_all()
    assert [name for name, _ in world.spawned] == [f"j{number:03}" for number in range(1000)]
    assert world.most_live == 4
    assert {(job.enabled, job.last_status, job.runs) for job in world.store.jobs} == {(False, "success", 1)}


async def test_idle_schedules_cost_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    write_jobs(world, [world.make("30d" if number % 2 else "0 0 3 1 1 *", f"j{number}") for number in range(1000)])
    async with world.running():
        world.clock.slept.clear()
        began_s = time.process_time()
        await world.clock.advance(10 * MINUTE)
        spent_s = time.process_time() - began_s
    assert world.clock.slept == [LOOK_S] * 20
    assert spent_s < 0.01 * 10 * MINUTE / 10  # a tenth of one per cent


async def test_other_process_is_noticed(tmp_path: Path, world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        world.scheduler.add(world.make("1h", "b"))
        other = ScheduleStore(tmp_path, "s1")
        other.remove("a")
        other.add(world.make("+2h", "c"))
        await world.clock.advance(HOUR)
        await world.end("r1")
        await world.clock.advance(HOUR)
    assert world.spawned == [
        ("b", "2026-06-01T13:00:00"),
        ("b", "2026-06-01T14:00:00"),
        ("c", "2026-06-01T14:00:00"),
    ]


async def test_late_cancel_stops_fire(tmp_path: Path, world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("+20s", "a"))
        await world.clock.advance(19)
        ScheduleStore(tmp_path, "s1").remove("a")
        await world.clock.advance(DAY)
    assert world.spawned == []


async def test_removal_by_another_process_is_told(tmp_path: Path, world: World) -> None:
    async with world.running():
        for name in ("a", "b"):
            world.scheduler.add(world.make("1h", name))
        await world.clock.advance(1)
        ScheduleStore(tmp_path, "s1").remove("a")
        await world.clock.advance(LOOK_S)
        ScheduleStore(tmp_path, "s1").remove("b")
        await world.clock.advance(LOOK_S)
    assert [(each.kind, each.job_id) for each in world.changes if each.kind == "removed"] == [
        ("removed", "a"),
        ("removed", "b"),
    ]


async def test_run_that_outlives_a_stop_is_recorded(tmp_path: Path, world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        await world.clock.advance(HOUR)
        world.scheduler.stop()
        await world.clock.advance(2 * HOUR)
        await world.end("r1")
        assert world.spawned == [("a", "2026-06-01T13:00:00")]
        job = ScheduleStore(tmp_path, "s1").jobs[0]
        assert (job.last_status, job.runs) == ("success", 1)
        assert world.scheduler.start(ScheduleStore(tmp_path, "s1")) == 1
        await world.clock.advance(HOUR)
    assert [time for _, time in world.spawned] == ["2026-06-01T13:00:00", "2026-06-01T16:00:00"]


async def test_restart_keeps_live_run(tmp_path: Path, world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        await world.clock.advance(HOUR)
        world.scheduler.stop()
        await world.clock.advance(MINUTE)
        world.scheduler.start(ScheduleStore(tmp_path, "s1"))
        await world.clock.advance(2 * HOUR)
        await world.end("r1")
        job = ScheduleStore(tmp_path, "s1").jobs[0]
    assert (len(world.spawned), job.last_status, job.runs) == (1, "success", 1)


async def test_stopped_scheduler_fires_nothing(world: World) -> None:
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        world.scheduler.stop()
        await world.clock.advance(DAY)
        assert (world.spawned, world.scheduler.store) == ([], None)
        with pytest.raises(UsageError, match=r"^Scheduler is not active in this session yet"):
            world.scheduler.add(world.make("1h", "b"))


async def test_unusable_jobs_are_reported_once(world: World) -> None:
    write_jobs(world, [world.make("1h", "good")])
    document = json.loads(world.store.path.read_text())
    bad = {**document["jobs"][0], "id": "bad", "name": "bad", "intervalMs": 0}
    world.store.path.write_text(json.dumps({**document, "jobs": [bad, *document["jobs"], "junk"]}))
    async with world.running():
        await world.clock.advance(HOUR)
    assert [(change.job_id, change.error.split(": ", 1)[-1]) for change in world.changes if change.kind == "error"] == [
        ("", "jobs[2] is not a scheduled job: Expected `object`, got `str`; it stays unchanged"),
        ("bad", "intervalMs must be at least 5000."),
    ]
    assert world.spawned == [("good", "2026-06-01T13:00:00")]


def write_jobs(world: World, jobs: list[Job]) -> None:
    """All jobs at once: what adding them one by one costs is another matter."""
    world.store.path.parent.mkdir(parents=True)
    world.store.path.write_text(json.dumps({"version": 1, "jobs": [to_entry(job) for job in jobs]}))
    world.store.reload()

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from retinue.core.run import Status
from retinue.features.schedule.store import ScheduleStore
from tests.flows.schedule_world import HOUR, MINUTE, World

LATER = datetime(2026, 6, 1, 13, 2, tzinfo=UTC)
DUE = "2026-06-01T13:00:00.000Z"

# Ends the process at a chosen moment of the first fire: before or after the agent has started.
DIE = """
import asyncio, os, sys
from pathlib import Path
from tests.flows.schedule_world import World

folder, moment = Path(sys.argv[1]), sys.argv[2]

class Doomed(World):
    async def spawn(self, job):
        if moment == "before spawn":
            os._exit(137)
        with open(folder / "spawned", "a") as file:
            file.write(f"{job.name} {job.last_run}\\n")
        if moment == "after spawn":
            os._exit(137)
        return await super().spawn(job)

    async def settled(self, run_id):
        os._exit(137)

async def live():
    async with Doomed(folder).running() as world:
        world.scheduler.add(world.make("+1h", "once"))
        world.scheduler.add(world.make("1h", "often"))
        await world.clock.advance(3600)

asyncio.run(live())
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("moment", ["before spawn", "after spawn", "after fired"])
@pytest.mark.parametrize("became", [Status.INTERRUPTED, Status.COMPLETED])
async def test_due_time_runs_exactly_once(tmp_path: Path, moment: str, became: Status) -> None:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DIE, str(tmp_path), moment, env=environment)
    assert await process.wait() == 137
    assert {job.last_status for job in ScheduleStore(tmp_path, "s1").jobs} == {"running"}
    world = World(tmp_path, now=LATER)
    spawned = tmp_path / "spawned"
    ran = spawned.read_text().splitlines() if spawned.exists() else []
    world.known = dict.fromkeys(ran, became)
    async with world.running():
        await world.end_all()
        jobs = [(job.name, job.enabled, job.runs) for job in world.store.jobs]
        errors = [change.error for change in world.changes if change.kind == "error"]
        started = [f"{name} {DUE}" for name, _ in world.spawned]
        await world.clock.advance(58 * MINUTE)
    assert jobs == [("once", False, 1), ("often", True, 1)]
    assert sorted({*ran, *started}) == sorted([*ran, *started]) == [f"often {DUE}", f"once {DUE}"]
    interrupted = f"Its run of {DUE} was interrupted and is not repeated."
    assert errors == ([interrupted] * len(ran) if became is Status.INTERRUPTED else [])
    assert world.spawned[-1] == ("often", "2026-06-01T14:00:00")


async def test_unrecorded_fire_does_not_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        world.kinds()
        blocker = start_holder(world.store.path)
        await world.clock.advance(HOUR + MINUTE)
        assert (world.spawned, world.kinds()) == ([], ["error"])
        end(blocker)
        await world.clock.advance(30)
    assert [name for name, _ in world.spawned] == ["a"]


async def test_unrecorded_end_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        world.scheduler.add(world.make("1h", "a"))
        await world.clock.advance(HOUR)
        blocker = start_holder(world.store.path)
        await world.end("r1")
        end(blocker)
        await world.clock.advance(30)
        job = ScheduleStore(tmp_path, "s1").jobs[0]
    assert (job.last_status, job.runs, len(world.spawned)) == ("success", 1, 1)


async def test_foreign_running_job_is_settled(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.add(msgspec.structs.replace(world.make("1h", "a"), last_status="running"))
    async with world.running():
        assert [job.last_status for job in world.store.jobs] == ["error"]


HOLD = """
import fcntl, os, sys
lock = os.open(sys.argv[1] + ".lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from retinue.features.schedule.job import Job
from retinue.features.schedule.store import ScheduleStore, StoreError
from tests.flows.test_schedule_crash import end, start_holder

# Counts up its own job; says each count once it is stored, so that the test knows what must not be lost.
COUNT = """
import sys
from pathlib import Path
import msgspec
from retinue.features.schedule.store import ScheduleStore

store = ScheduleStore(Path(sys.argv[1]), "s1", wait_s=60)
for _ in range(int(sys.argv[3])):
    changed = store.update({sys.argv[2]: lambda job: msgspec.structs.replace(job, run_count=job.runs + 1)})
    print(changed[sys.argv[2]].runs, flush=True)
"""


def make_job(job_id: str) -> Job:
    return Job(
        id=job_id,
        name=job_id,
        schedule="5m",
        schedule_type="interval",
        interval_ms=300_000,
        subagent_type="Explore",
        prompt="look " * 200,
        enabled=True,
        run_count=0,
    )


class Writer:
    """A process that counts; killed and started again, it goes on from what is stored."""

    def __init__(self, folder: Path, job_id: str, total: int) -> None:
        self.folder, self.job_id, self.total = folder, job_id, total
        self.seen = 0
        self.start()

    def start(self) -> None:
        stored = ScheduleStore(self.folder, "s1").find(self.job_id)
        assert stored is not None and self.seen <= stored.runs <= self.seen + 1, (self.job_id, self.seen)
        command = [sys.executable, "-c", COUNT, str(self.folder), self.job_id, str(self.total - stored.runs)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def finish(self) -> int:
        out, _ = self.process.communicate()
        self.seen = max([self.seen, *map(int, out.split())])
        return self.process.returncode


def count_together(folder: Path, *, writers: int, updates: int, kills: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    store = ScheduleStore(folder, "s1")
    names = [f"job{number}" for number in range(writers)]
    for name in names:
        store.add(make_job(name))
    crew = [Writer(folder, name, updates) for name in names]
    for _ in range(kills):
        time.sleep(dice.uniform(0, 0.05))
        victim = dice.choice(crew)
        victim.process.send_signal(signal.SIGKILL)
        victim.finish()
        victim.start()
    assert [writer.finish() for writer in crew] == [0] * writers
    document = json.loads(store.path.read_text())
    assert {job["id"]: job["runCount"] for job in document["jobs"]} == dict.fromkeys(names, updates)
    assert [file.name for file in store.path.parent.iterdir()] == ["s1.json"]


def test_writers_lose_nothing(tmp_path: Path) -> None:
    count_together(tmp_path, writers=4, updates=60, kills=6)


@pytest.mark.slow
def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    count_together(tmp_path, writers=8, updates=500, kills=60)


@pytest.mark.spec("fleet:B86")
def test_dead_lock_is_free(tmp_path: Path) -> None:
    store = ScheduleStore(tmp_path, "s1")
    store.add(make_job("a"))
    holder = start_holder(store.path)
    end(holder)
    Path(f"{store.path}.lock").write_text(str(holder.pid))
    began_s = time.monotonic()
    store.add(make_job("b"))
    assert time.monotonic() - began_s < 4  # a lock that is held would be waited for
    assert not Path(f"{store.path}.lock").exists()


@pytest.mark.spec("fleet:B86")
def test_held_lock_delays_then_fails(tmp_path: Path) -> None:
    store = ScheduleStore(tmp_path, "s1", wait_s=0.05)
    store.add(make_job("a"))
    before = store.path.read_bytes()
    holder = start_holder(store.path)
    began_s = time.monotonic()
    with pytest.raises(StoreError, match=rf"^Failed to acquire schedule lock: {store.path}\.lock"):
        store.update({"a": lambda job: msgspec.structs.replace(job, enabled=False)})
    assert time.monotonic() - began_s >= 0.05
    end(holder)
    assert (store.path.read_bytes(), store.find("a")) == (before, make_job("a"))


@pytest.mark.spec("fleet:B87")
def test_left_temporary_is_replaced(tmp_path: Path) -> None:
    store = ScheduleStore(tmp_path, "s1")
    store.add(make_job("a"))
    Path(f"{store.path}.tmp").write_text("half a")
    store.remove("a")
    assert [file.name for file in store.path.parent.iterdir()] == ["s1.json"]


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    store = ScheduleStore(tmp_path, "s1")
    store.add(make_job("a"))
    before = store.path.read_bytes()
    os.mkdir(f"{store.path}.tmp")  # in the way of the temporary file, also for root
    with pytest.raises(StoreError, match="cannot be written"):
        store.remove("a")
    os.rmdir(f"{store.path}.tmp")
    assert (store.path.read_bytes(), store.jobs) == (before, [make_job("a")])
    assert store.update({"a": lambda job: msgspec.structs.replace(job, enabled=False)})
    assert [job.enabled for job in ScheduleStore(tmp_path, "s1").jobs] == [False]

"""Workers, faces and the database need not have the same clock: the database's counts."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from bench.cluster_world import start_program
from retinue.core.run import Status
from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}
HOUR_S = 3600
CLOCK = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {off_s}
time.time_ns = lambda: _time_ns() + {off_s} * 10**9
"""


@pytest.fixture
def set_clock(tmp_path):
    """Variables of a program whose clock is wrong by so much."""

    def make(off_s):
        folder = tmp_path / f"clock{off_s}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(CLOCK.format(off_s=off_s))
        return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)}

    return make


def read_status(world, **variables):
    env = {"RETINUE_DATABASE": world.database, **variables}
    done = run_cli(("cluster", "status", "--json"), world.project, env, home=world.agent_dir.parent.parent)
    return json.loads(done.stdout)


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


def find_lag_s(outcome):
    """By how much what a run has said is from another time."""
    lines = [json.loads(line) for line in Path(outcome.session_file).read_text().splitlines()]
    said_ms = [line["message"]["timestamp"] for line in lines if line["type"] == "message"]
    return abs(said_ms[-1] / 1000 - time.time())


async def test_workers_need_not_agree_on_time(world, set_clock):
    world.start = start_program
    go = world.shared / "go"
    world.play(world.act(1, after=f"until [ -e {go} ]; do sleep 0.1; done"), DONE)
    for off_s in (-HOUR_S, HOUR_S):
        world.launch_worker("--slots", "1", **set_clock(off_s))
    for worker in world._workers:
        world.await_worker(worker)
    async with world.open_face() as face:
        handles = [await face.spawn("general-purpose", f"Work {number}.") for number in range(2)]
        await wait_for(world, lambda: len(world.effects) == 2, "both act")
        state = read_status(world, **set_clock(24 * HOUR_S))
        go.touch()
        outcomes = [await handle.wait() for handle in handles]
    ages = [worker["seenAgoMs"] for worker in state["workers"]] + [run["sinceMs"] for run in state["runs"]]
    assert [(outcome.status, find_lag_s(outcome) > 3000) for outcome in outcomes] == [(Status.COMPLETED, True)] * 2
    assert (len(ages), max(ages) < 60_000, world.ask("SELECT max(epoch) FROM retinue.runs")) == (4, True, [(1,)])
    assert [world.read_log(number).count("is gone") for number in (0, 1)] == [0, 0]


@pytest.mark.slow
async def test_pruning_counts_by_the_database(world, set_clock):
    world.play(DONE)
    world.start_worker()
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    env = {"RETINUE_DATABASE": world.database, **set_clock(1000 * 24 * HOUR_S)}
    words = ("cluster", "prune", "--days", "3")
    done = run_cli(words, world.project, env, home=world.agent_dir.parent.parent)
    assert (done.status, done.stderr) == (0, "retinue: nothing finished more than 3 days ago\n")

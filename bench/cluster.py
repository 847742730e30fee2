"""Runs on workers: how soon they start, what the engine and judges elsewhere cost, and what more workers bring.

Needs a Postgres (Debian's package); its server is started here and thrown away.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.cluster_world import USAGE, ClusterWorld, open_world
from bench.figure import Figure
from retinue.core.events import ToolFinished
from retinue.core.run import Status

DONE = {"text": "All done.", "usage": USAGE}
WORKERS = 3


def measure() -> Iterator[Figure]:
    """The figures of the cluster."""
    yield from asyncio.run(_measure_start())
    yield from asyncio.run(_measure_cost())
    yield from asyncio.run(_measure_judgement())
    yield from asyncio.run(_measure_width())


async def _run_all(world: ClusterWorld, count: int, *, one_by_one: bool = False, workers: int = 1) -> float:
    """How long so many runs take, when each worker has had one before."""
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Warm up.")).wait()
        while workers > 1 and len(world.ask("SELECT DISTINCT owner FROM retinue.runs")) < workers:
            warming = [await face.spawn("general-purpose", "Warm up.") for _ in range(workers)]
            await asyncio.gather(*(handle.wait() for handle in warming))
        began_s = time.monotonic()
        if one_by_one:
            for number in range(count):
                await (await face.spawn("general-purpose", f"Task {number}.")).wait()
        else:
            handles = [await face.spawn("general-purpose", f"Task {number}.") for number in range(count)]
            outcomes = await asyncio.gather(*(handle.wait() for handle in handles))
            assert all(outcome.status is Status.COMPLETED for outcome in outcomes)
        return time.monotonic() - began_s


async def _measure_start() -> list[Figure]:
    with open_world() as (world, _):
        world.play(DONE)
        world.start_worker()
        await _run_all(world, 20, one_by_one=True)
        rows = world.ask("SELECT extract(epoch FROM started - created)::float * 1000 FROM retinue.runs")
        waits = sorted(wait for (wait,) in rows)
        worker = world.start_worker()
        noticed = await _measure_loss(world, worker)
    note = "from its record to a worker's claim, 20 runs one after the other"
    return [
        Figure("cluster: enqueue to start, p50", median(waits), "ms", 150, note),
        Figure("cluster: a dead worker is noticed", noticed, "s", 2, "kill -9 until its place is free for others"),
    ]


async def _measure_loss(world: ClusterWorld, worker: Any) -> float:
    await asyncio.sleep(4)
    world.kill(worker)
    began_s = time.monotonic()
    gone = "SELECT 1 FROM retinue.workers WHERE gone IS NOT NULL"
    await asyncio.to_thread(world.wait_until, lambda: world.ask(gone), "the loss is noticed")
    return time.monotonic() - began_s


async def _measure_cost() -> list[Figure]:
    """Processor time of a worker for each turn, against the same run without one."""
    turns, count = 20, 10
    call = {"calls": [{"name": "ls", "arguments": {}}], "usage": USAGE}
    with open_world() as (world, _):
        world.play(*[call] * (turns - 1), DONE)
        worker = world.start_worker()
        await _run_all(world, 1)
        before_s = _read_cpu(worker.pid)
        await _run_all(world, count)
        cluster_s = _read_cpu(worker.pid) - before_s
        world.change({"runner": "inprocess"})
        # Of this thread alone: the model's server is another one of the same process.
        before_s = time.thread_time()
        await _run_all(world, count)
        local_s = time.thread_time() - before_s
    per_turn = (cluster_s / ((count + 1) * turns) - local_s / ((count + 1) * turns)) * 1000
    return [Figure("cluster: engine cost of a model turn", per_turn, "ms CPU", 10, f"{count} runs of {turns} turns")]


async def _measure_judgement() -> list[Figure]:
    """What a call waits for its face, where a rule is looked at: against the same calls where there is none."""
    call = {"calls": [{"name": "ls", "arguments": {}}], "usage": USAGE}
    with open_world() as (world, _):
        world.play(*[call] * 30, DONE)
        world.start_worker()
        free_ms = await _time_calls(world)
        world.change({"approvalRules": [{"action": "deny", "tool": "bash", "pattern": "*/etc/shadow*"}]})
        judged_ms = await _time_calls(world)
    note = f"30 calls one after the other; {free_ms:g} ms without rules"
    return [Figure("cluster: a call judged at its face, p50", judged_ms - free_ms, "ms", None, note)]


async def _time_calls(world: ClusterWorld) -> float:
    """How long a call of a run takes on its worker, in the middle."""
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        found = [event.duration_ms async for event in handle.events() if isinstance(event, ToolFinished)]
    return median(took_ms for took_ms in found if took_ms is not None)


async def _measure_width() -> list[Figure]:
    """Sixty runs that wait for the model: one worker with twenty places, and three of them."""
    at_once = {**DONE, "match": {"first_user": "^Warm"}}
    task: dict[str, Any] = {"match": {"first_user": "^Task"}, "delay_ms": 2_000, "usage": USAGE}
    replies = [{**task, "calls": [{"name": "ls", "arguments": {}}]}] * 3
    taken = []
    for workers in (1, WORKERS):
        with open_world() as (world, _):
            world.play(at_once, *replies, {**task, "text": "All done."})
            for _ in range(workers):
                world.start_worker("--slots", "20")
            taken.append(await _run_all(world, 60, workers=workers))
    note = f"60 runs: {taken[0]:.1f} s on one worker of 20 places, {taken[1]:.1f} s on three; the bar is 2.5 or more"
    return [Figure("cluster: three workers against one, slowness", taken[1] / taken[0], "×", 1 / 2.5, note)]


def _read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

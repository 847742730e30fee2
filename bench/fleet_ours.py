"""retinue's side of the fleet: one parent reply starts the children, one joins them. Prints one JSON object.

With `--queue` instead: that many runs wait behind one, and are all stopped.
"""

import argparse
import asyncio
import gc
import itertools
import json
import resource
import statistics
import time
from typing import Any

import retinue.app.subagents as crew_module
from bench.bare import read_memory_mb
from bench.fleet_bare import read_peak_mb
from retinue.app import Retinue
from retinue.core.run import Status
from retinue.engine.request import RunRequest


def read_cpu_s() -> float:
    """User and system time of this process and of all it has started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def play(children: int) -> dict[str, Any]:
    """One prompt with all it starts."""
    # The script of the server names the runs it asks for, so their names have to be known.
    numbers = itertools.count()
    vars(crew_module)["make_run_id"] = lambda: f"child{next(numbers):012d}"
    async with Retinue(model="mock/bench") as main:
        await main.prompt("warm up")
        gc.collect()
        cpu_s, begun_s = read_cpu_s(), time.monotonic()
        outcome = await main.prompt("begin", settle=True)
        cost = {"span_s": time.monotonic() - begun_s, "cpu_s": read_cpu_s() - cpu_s, "memory_mb": read_peak_mb()}
        runs = [handle.run for handle in await main.runs()]
        done = sum(run.status is Status.COMPLETED for run in runs)
        turns = outcome.turns + sum(run.turns for run in runs)
        return {**cost, "turns": turns, "unfinished": children - done}


async def fill_queue(length: int) -> dict[str, Any]:
    """Runs that wait, and their end."""
    async with Retinue(model="mock/bench") as main:
        manager = (await main._here.need_subagents()).manager
        gc.collect()
        before_mb, times = read_memory_mb(), []
        for number in range(length):
            request = RunRequest(
                agent="general-purpose", task=f"task {number}", description=f"task {number}", surface="fleet"
            )
            begun_s = time.perf_counter()
            manager.spawn(request)
            times.append(time.perf_counter() - begun_s)
            if number % 100 == 0:
                await asyncio.sleep(0)
        grown_mb = read_memory_mb() - before_mb
        begun_s = time.monotonic()
        manager.stop_all()
        await asyncio.gather(*(manager.wait(run.id) for run in manager.list_runs()))
        cancel_s = time.monotonic() - begun_s
        active = sum(not run.status.is_final for run in manager.list_runs())
    p95_ms = statistics.quantiles(times, n=20)[-1] * 1000
    return {"grown_mb": grown_mb, "cancel_s": cancel_s, "p95_ms": p95_ms, "active": active}


def main() -> None:
    """Parse the command line, play, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--children", type=int, default=1)
    parser.add_argument("--queue", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(fill_queue(options.queue) if options.queue else play(options.children))))


if __name__ == "__main__":
    main()

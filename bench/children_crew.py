"""Starts children in processes of their own and prints what they cost, as one JSON object. Run by bench/children.py."""

import argparse
import asyncio
import json
import os
import resource
import time
from pathlib import Path

from retinue import Request, Retinue, SessionWish
from retinue.core.run import Status
from retinue.tools.process_tree import list_descendants


def read_pss_kb(pid: int) -> int:
    """The memory of a process with its share of what it shares; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


async def watch_memory(peak: list[int], every_s: float) -> None:
    """Note the largest sum of all descendants seen so far."""
    while True:
        await asyncio.sleep(every_s)
        peak[0] = max(peak[0], sum(read_pss_kb(pid) for pid in list_descendants(os.getpid())))


def measure_cpu_s() -> float:
    """Of everything that was started and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def play(children: int, watch_s: float) -> dict[str, object]:
    """All at once, or one after the other when nobody watches their memory."""
    peak, begun_s, cpu_s = [0], time.perf_counter(), measure_cpu_s()
    request = Request(session=SessionWish("none"))
    async with Retinue(".", model="mock/bench", request=request) as crew, asyncio.TaskGroup() as group:
        watcher = group.create_task(watch_memory(peak, watch_s)) if watch_s else None
        outcomes = []
        if watch_s:
            handles = [await crew.spawn("general-purpose", f"task {number}") for number in range(children)]
            outcomes = [await handle.wait() for handle in handles]
        else:
            for number in range(children):
                outcomes.append(await (await crew.spawn("general-purpose", f"task {number}")).wait())
        if watcher is not None:
            watcher.cancel()
    return {
        "done": sum(outcome.status is Status.COMPLETED for outcome in outcomes),
        "errors": sorted({outcome.error for outcome in outcomes if outcome.error}),
        "cpu_s": measure_cpu_s() - cpu_s,
        "wall_s": time.perf_counter() - begun_s,
        "pss_kb": peak[0],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--children", type=int, required=True)
    parser.add_argument("--watch-s", type=float, default=0.0)
    chosen = parser.parse_args()
    print(json.dumps(asyncio.run(play(chosen.children, chosen.watch_s))))

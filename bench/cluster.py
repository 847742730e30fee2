"""Runs on workers: how soon they start, what the engine costs, what more workers bring, and what kills leave behind.

Needs a Postgres (Debian's package); its server is started here and thrown away. A sample of the kills runs as a test.
"""

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.cluster_world import ClusterWorld
from bench.figure import Figure
from retinue.core.run import Status
from retinue.testing.postgres import find_postgres, open_postgres

DONE = {"text": "All done.", "usage": {"input": 1_000, "output": 50}}
WORKERS = 3
KILL_S = 5.0
ORPHAN_S = 2.0


@dataclass(slots=True)
class Harm:
    """What was found to be wrong after a storm of kills; nothing may be."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    overspent: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    runs: int = 0
    kills: int = 0
    moved: int = 0

    def render(self) -> str:
        """All of it in a line."""
        wrong = {name: getattr(self, name) for name in ("lost", "doubled", "repeated", "overspent", "orphans")}
        return f"{self.runs} runs, {self.kills} kills, {self.moved} moved; " + ", ".join(
            f"{name} {len(found)}" for name, found in wrong.items()
        )

    @property
    def is_none(self) -> bool:
        return not (self.lost or self.doubled or self.repeated or self.overspent or self.orphans)


async def storm(world: ClusterWorld, seed: int, *, runs: int, turns: int = 5, kill_s: float = KILL_S) -> Harm:
    """Kill a random worker again and again, and a new one comes, until all runs are done; then look for harm."""
    chance, harm, finished = random.Random(seed), Harm(runs=runs), Counter[str]()
    budget = runs * turns * 100_000
    world.settings["budget"] = {"tokens": budget}
    acts = [world.act(turn, after="sleep 0.2", usage={"input": 1_000, "output": 50}) for turn in range(turns - 1)]
    world.play(*acts, DONE)
    workers = [await asyncio.to_thread(world.start_worker) for _ in range(WORKERS)]
    async with world.open_face() as face:
        face.listen(lambda event: finished.update([event.run_id] * (type(event).__name__ == "RunFinished")))
        handles = [await face.spawn("general-purpose", f"Task {number}.") for number in range(runs)]
        waiting = asyncio.gather(*(handle.wait() for handle in handles))
        while not waiting.done():
            await asyncio.wait([waiting], timeout=kill_s * chance.uniform(0.7, 1.3))
            if waiting.done():
                break
            place = chance.randrange(WORKERS)
            await asyncio.to_thread(world.kill, workers[place])
            workers[place] = await asyncio.to_thread(world.start_worker)
            harm.kills += 1
        outcomes = await waiting
    harm.lost += [
        f"{h.id}: {o.status} {o.error}"
        for h, o in zip(handles, outcomes, strict=True)
        if o.status is not Status.COMPLETED
    ]
    harm.doubled += [run for run, count in finished.items() if count != 1 and run in {h.id for h in handles}]
    harm.repeated += [line for line, count in Counter(world.effects).items() if count > 1]
    for key, limit, spent, held in world.ask("SELECT id, tokens, spent_tokens, held_tokens FROM retinue.leases"):
        if limit is not None and (spent > limit or held):
            harm.overspent.append(f"{key}: {spent} of {limit}, {held} held")
    [(harm.moved,)] = world.ask("SELECT count(*) FROM retinue.runs WHERE epoch > 1")
    for worker in workers:
        world.kill(worker)
    await asyncio.sleep(ORPHAN_S)
    harm.orphans += find_processes(str(world.log))
    return harm


def find_processes(marker: str) -> list[str]:
    """Processes whose command line has the marker."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if marker in line:
                found.append(line[:200])
    return found


@contextmanager
def open_world() -> Iterator[ClusterWorld]:
    """A world with a server of its own."""
    programs = find_postgres()
    if programs is None:
        raise RuntimeError("no Postgres: install Debian's postgresql")
    root = Path(tempfile.mkdtemp(prefix="retinue-cluster-"))
    root.chmod(0o711)
    agent = root / "home" / ".pi" / "agent"
    agent.mkdir(parents=True)
    kept = {name: os.environ.get(name) for name in ("PI_CODING_AGENT_DIR", "RETINUE_NO_LOCAL")}
    os.environ |= {"PI_CODING_AGENT_DIR": str(agent), "RETINUE_NO_LOCAL": "1"}
    try:
        with open_postgres(programs, root / "postgres") as server:
            (root / "w").mkdir()
            with ClusterWorld.open(server.make_database(), agent, root / "w") as world:
                yield world
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            os.environ |= {name: value} if value is not None else {}
        shutil.rmtree(root, ignore_errors=True)


def measure() -> Iterator[Figure]:
    """The figures of the cluster."""
    yield from asyncio.run(_measure_start())
    yield from asyncio.run(_measure_cost())
    yield from asyncio.run(_measure_width())


async def _run_all(world: ClusterWorld, count: int, *, one_by_one: bool = False) -> float:
    """How long so many runs take."""
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Warm up.")).wait()
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
    with open_world() as world:
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
    call = {"calls": [{"name": "ls", "arguments": {}}], "usage": {"input": 1_000, "output": 50}}
    with open_world() as world:
        world.play(*[call] * (turns - 1), DONE)
        worker = world.start_worker()
        await _run_all(world, 1)
        before_s = _read_cpu(worker.pid)
        await _run_all(world, count)
        cluster_s = _read_cpu(worker.pid) - before_s
        world.change({"runner": "inprocess"})
        before_s = time.process_time()
        await _run_all(world, count)
        local_s = time.process_time() - before_s
    per_turn = (cluster_s / ((count + 1) * turns) - local_s / ((count + 1) * turns)) * 1000
    return [Figure("cluster: engine cost of a model turn", per_turn, "ms CPU", 10, f"{count} runs of {turns} turns")]


async def _measure_width() -> list[Figure]:
    """Sixty runs that wait for the model: one worker with twenty places, and three of them."""
    replies = [{**DONE, "calls": [{"name": "ls", "arguments": {}}], "delay_ms": 2_000}] * 3
    taken = []
    for workers in (1, WORKERS):
        with open_world() as world:
            world.play(*replies, {**DONE, "delay_ms": 2_000})
            for _ in range(workers):
                world.start_worker("--slots", "20")
            taken.append(await _run_all(world, 60))
    note = f"60 runs: {taken[0]:.1f} s on one worker of 20 places, {taken[1]:.1f} s on three; the bar is 2.5 or more"
    return [Figure("cluster: three workers against one, slowness", taken[1] / taken[0], "×", 1 / 2.5, note)]


def _read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

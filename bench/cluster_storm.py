"""A storm of kills: a crew of hundreds on workers that die again and again, and what is wrong afterwards.

`python -m bench.cluster_storm 0-19` plays these seeds and prints a line for each; `--sleep`, `--away`, `--tight` and
`--face` add a worker that sleeps past its lease, a database that is away for 30 s, a budget that does not suffice, and
a face that is killed, too. A sample runs as a test.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.cluster_oracle import Harm, list_processes, look, watch_ends
from bench.cluster_world import USAGE, ClusterWorld, open_world
from bench.figure import Figure
from tests.postgres import Postgres

WORKERS, SLOTS = 3, 20
KILL_S = 5.0
ORPHAN_S = 2.0
SLEEP_S = 14.0
"""Past the lease of ten seconds."""
AWAY_S = 30.0
CALLS = 50
"""Runs that the main agent starts in one reply."""
LIMIT_S = 900.0
AMPLE, TIGHT = 60_000_000, 4_000_000
# One run in sixteen is long at each call, so that kills find processes to leave behind.
LINGER = 'case "$PI_SESSION_ID" in *f) sleep 4;; *) sleep 0.2;; esac'
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Weather:
    """What a storm is made of."""

    runs: int = 300
    turns: int = 5
    kill_s: float = KILL_S
    slots: int = SLOTS
    sleeps: bool = False
    away_s: float = 0.0
    is_tight: bool = False
    kills_face: bool = False


class Storm:
    """One crew, from its first prompt to the last report."""

    def __init__(self, world: ClusterWorld, postgres: Postgres, seed: int, weather: Weather) -> None:
        self.harm = Harm(runs=weather.runs)
        self._world = world
        self._postgres = postgres
        self._weather = weather
        self._chance = random.Random(seed)
        self._session = world.project.parent / "main.jsonl"
        self._workers: list[subprocess.Popen[str]] = []

    async def play(self) -> Harm:
        """All of it; returns what is wrong."""
        world, weather, begin_s = self._world, self._weather, time.monotonic()
        join = self._chance.choice(("async", "smart"))
        budget = {"tokens": TIGHT if weather.is_tight else AMPLE}
        world.settings |= {"maxSpawnsPerTree": 2 * weather.runs, "defaultJoinMode": join, "budget": budget}
        world.play(*self._script(), contextWindow=4_000_000)
        self._workers = [self._launch() for _ in range(WORKERS)]
        for worker in self._workers:
            await asyncio.to_thread(world.await_worker, worker)
        watch_ends(world)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            disasters = [group.create_task(work) for work in self._list_disasters()]
            await self._lead()
            for task in disasters:
                task.cancel()
        self.harm.seconds = time.monotonic() - begin_s
        look(
            world,
            self._session,
            self.harm,
            turns=weather.turns,
            may_stop=weather.is_tight,
            spared_holds=int(weather.kills_face),
        )
        for worker in self._workers:
            await self._kill(worker)
        return self.harm

    def _script(self) -> list[Json]:
        world, weather = self._world, self._weather
        main, child = {"first_user": "^Begin"}, {"first_user": "^Task"}
        calls = [
            {"name": "Agent", "arguments": {"prompt": f"Task {n}.", "description": f"task {n}"}}
            for n in range(weather.runs)
        ]
        starts = [{"calls": calls[n : n + CALLS], "match": main} for n in range(0, weather.runs, CALLS)]
        # As slow as a model, so that reports come together.
        told = [{"text": f"Noted {n}.", "match": main, "delay_ms": 1_000} for n in range(2 * weather.runs)]
        acts = [world.act(turn, after=LINGER, match=child) for turn in range(weather.turns - 1)]
        end = {"text": "All done.", "match": child}
        replies: list[Json] = [*starts, *told, *acts, end]
        return [{**reply, "usage": USAGE} for reply in replies]

    def _launch(self) -> subprocess.Popen[str]:
        return self._world.launch_worker("--slots", str(self._weather.slots))

    async def _lead(self) -> None:
        """The face, killed in the middle and opened again where that is wanted."""
        world, prompt = self._world, "Begin."
        face = world.start_face(self._session, prompt)
        try:
            if self._weather.kills_face:
                await self._wait_for_share(self._chance.uniform(0.2, 0.7))
                face.kill()
                face.wait()
                face = world.start_face(self._session, "Go on.")
            while face.poll() is None:
                await asyncio.sleep(0.1)
        finally:
            face.kill()
            face.wait()
        if face.returncode != 0 and not self._weather.is_tight:
            self.harm.lost.append(f"the face ended with {face.returncode}: {world.read_face()[-500:]}")

    async def _wait_for_share(self, share: float) -> None:
        """Until so much of the work is done."""
        target = self._weather.runs * (self._weather.turns - 1) * share
        while len(self._world.effects) < target:
            await asyncio.sleep(0.1)

    def _list_disasters(self) -> Iterator[Any]:
        yield self._kill_often()
        if self._weather.sleeps:
            yield self._let_one_sleep()
        if self._weather.away_s:
            yield self._take_database()

    async def _kill_often(self) -> None:
        while True:
            await asyncio.sleep(self._weather.kill_s * self._chance.uniform(0.8, 1.2))
            place = self._chance.randrange(WORKERS)
            self.harm.kills += 1
            former, self._workers[place] = self._workers[place], self._launch()
            await self._kill(former)

    async def _kill(self, worker: subprocess.Popen[str]) -> None:
        """End it as a power cut would; nothing that it had started may be left soon after."""
        mark = self._world.mark_worker(worker)
        await asyncio.to_thread(self._world.kill, worker)
        ends_s = time.monotonic() + ORPHAN_S
        while (left := list_processes(mark)) and time.monotonic() < ends_s:
            await asyncio.sleep(0.1)
        self.harm.orphans += left

    async def _let_one_sleep(self) -> None:
        """One that is no victim of the kills meanwhile: it is to wake among the living."""
        await self._wait_for_share(self._chance.uniform(0.2, 0.5))
        sleeper = self._launch()
        await asyncio.to_thread(self._world.await_worker, sleeper)
        await asyncio.sleep(3)
        os.kill(sleeper.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(SLEEP_S)
        finally:
            os.kill(sleeper.pid, signal.SIGCONT)
        await asyncio.sleep(10)
        await self._kill(sleeper)

    async def _take_database(self) -> None:
        await self._wait_for_share(self._chance.uniform(0.2, 0.6))
        await asyncio.to_thread(self._postgres.stop)
        try:
            await asyncio.sleep(self._weather.away_s)
        finally:
            self._postgres.start()


async def play(seed: int, weather: Weather) -> Harm:
    """One seed in a world of its own."""
    with open_world() as (world, postgres):
        return await Storm(world, postgres, seed, weather).play()


def measure() -> Iterator[Figure]:
    """One seed of each kind; more of them: see above."""
    kinds = {"plain": Weather(), "sleep": Weather(sleeps=True), "away": Weather(away_s=AWAY_S)}
    seed = random.SystemRandom().randrange(1 << 30)
    for name, weather in kinds.items():
        harm = asyncio.run(play(seed, weather))
        report(seed, name, harm)
        yield Figure(f"cluster: harm done by a storm ({name})", len(harm.all), "", 0, harm.render())


def report(seed: int, name: str, harm: Harm) -> None:
    """One line, and one more for each thing that is wrong."""
    print(f"storm {name}, seed {seed}: {harm.render()}", file=sys.stderr, flush=True)
    for line in harm.all[:40]:
        print(f"  {line}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Play the seeds that are named; 1 when harm was done."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_storm", description=__doc__)
    parser.add_argument("seeds", help="a number, or a range such as 0-19")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--kill-s", type=float, default=KILL_S)
    for flag in ("sleep", "away", "tight", "face"):
        parser.add_argument(f"--{flag}", action="store_true")
    told = parser.parse_args(words)
    first, _, last = told.seeds.partition("-")
    weather = Weather(
        runs=told.runs,
        kill_s=told.kill_s,
        sleeps=told.sleep,
        away_s=AWAY_S if told.away else 0.0,
        is_tight=told.tight,
        kills_face=told.face,
    )
    name = " ".join(flag for flag in ("sleep", "away", "tight", "face") if getattr(told, flag)) or "plain"
    harmed = 0
    for seed in range(int(first), int(last or first) + 1):
        harm = asyncio.run(play(seed, weather))
        report(seed, name, harm)
        harmed += bool(harm.all)
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

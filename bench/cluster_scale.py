"""The constants of docs/concepts/scale.md: what a turn writes, what it costs the database, and how much that can take.

Reported without a bar: they say where the next limit is, not whether something is too slow.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench.cluster_world import USAGE, ClusterWorld, open_world
from bench.figure import Figure
from retinue.core.run import Status
from retinue.durable.cluster.assignment import Assignment
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.record import Claim, submit
from retinue.durable.session_files import RecordPart
from tests.postgres import Postgres

RUNS, TURNS = 10, 5
IDLE_S, LOAD_S, WRITERS = 10.0, 5.0, 8
TEXT = "The quick brown fox reads a file and says what it has found there. " * 30
"""About 500 tokens."""
PACE = {"delay_ms": 300, "chunk_ms": 40, "chunk_chars": 20}
_WATCH = """
CREATE TABLE public.batches (size integer NOT NULL);
CREATE FUNCTION public.note_batch() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.batches VALUES (octet_length(NEW.data)); RETURN NEW; END $$;
CREATE TRIGGER note_batch AFTER INSERT ON retinue.events FOR EACH ROW EXECUTE FUNCTION public.note_batch();
"""


def measure() -> Iterator[Figure]:
    """All of them."""
    yield from asyncio.run(_measure_idle())
    yield from asyncio.run(_measure_turns())
    yield from asyncio.run(_measure_bytes())
    yield from asyncio.run(_measure_writes())


async def _measure_idle() -> list[Figure]:
    with open_world() as (world, _):
        world.play({"text": "Nothing."})
        world.start_worker()
        await asyncio.sleep(3)
        before = _count_transactions(world)
        await asyncio.sleep(IDLE_S)
        rate = (_count_transactions(world) - before) / IDLE_S
        [(held,)] = world.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    return [
        Figure("scale: transactions of an idle worker", rate, "/s", None, f"{IDLE_S:g} s"),
        Figure("scale: connections of an idle worker", held, "", None),
    ]


def _count_transactions(world: ClusterWorld) -> int:
    [(count,)] = world.ask("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database")
    return int(count)


async def _measure_turns() -> list[Figure]:
    """Runs that stream to a face that watches them: what Postgres works for each turn."""
    with open_world() as (world, postgres):
        await _stream(world)
        before_s = _read_server_cpu(postgres)
        began_s = time.monotonic()
        await _stream(world, is_first=False)
        took_s = time.monotonic() - began_s
        used_s = _read_server_cpu(postgres) - before_s
        # What it would have worked for an idle worker is told elsewhere.
        idle_from_s = _read_server_cpu(postgres)
        await asyncio.sleep(IDLE_S)
        idle = (_read_server_cpu(postgres) - idle_from_s) / IDLE_S
    per_turn = (used_s - idle * took_s) / (RUNS * TURNS) * 1000
    note = f"{RUNS} runs of {TURNS} turns, {len(TEXT)} characters streamed in each, beside an idle worker's {idle:.1%}"
    return [Figure("scale: processor time of Postgres for a turn", per_turn, "ms CPU", None, note)]


async def _stream(world: ClusterWorld, *, is_first: bool = True) -> None:
    if is_first:
        call = {"text": TEXT, "calls": [{"name": "ls", "arguments": {}}], "usage": USAGE, **PACE}
        world.play(*[call] * (TURNS - 1), {"text": TEXT, "usage": USAGE, **PACE})
        world.start_worker()
    async with world.open_face() as face:
        handles = [await face.spawn("general-purpose", f"Task {number}.") for number in range(1 if is_first else RUNS)]
        outcomes = [await handle.wait() for handle in handles]
    assert all(outcome.status is Status.COMPLETED for outcome in outcomes)


async def _measure_bytes() -> list[Figure]:
    with open_world() as (world, _):
        await _stream(world)
        world.do(_WATCH)
        await _stream(world, is_first=False)
        [(batch, batches)] = world.ask(
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY size), count(*) FROM public.batches"
        )
        [(size,)] = world.ask(
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY size) FROM (SELECT sum(octet_length(data)) AS size"
            " FROM retinue.records WHERE kind = 'session' GROUP BY run) AS sizes"
        )
    each = f"{batches / RUNS / TURNS:.1f} batches a turn"
    return [
        Figure("scale: an event batch, p50", batch, "bytes", None, each),
        Figure("scale: record of a turn", float(size) / TURNS, "bytes", None, "without changes of the workspace"),
    ]


async def _measure_writes() -> list[Figure]:
    """Several writers, each on a run of its own, with nothing else to do. What it costs does not depend on who else is
    busy here; how many there were does.
    """
    with open_world() as (world, postgres):
        async with Database(world.database) as database:
            claims = [await _claim(database, number) for number in range(WRITERS)]
            places = [0] * WRITERS

            async def keep(number: int) -> None:
                places[number] += 1
                await claims[number].keep([RecordPart("session", "session.jsonl", places[number], b"x" * 4_000)])

            async def tell(number: int) -> None:
                await claims[number].tell([b"x" * 500])

            kept, told = await _load(keep, postgres), await _load(tell, postgres)
    note = "{:.0f} a second, with " + f"{WRITERS} runs on 4 connections, from the same cores; without fsync"
    return [
        Figure("scale: processor time of Postgres for a record", kept[0], "ms CPU", None, note.format(kept[1])),
        Figure("scale: the same for an event batch with NOTIFY", told[0], "ms CPU", None, note.format(told[1])),
    ]


async def _claim(database: Database, number: int) -> Claim:
    assignment = Assignment(
        run_id=f"run{number}",
        attempt=1,
        agent="a",
        description="",
        depth=1,
        task="",
        sections=(),
        tools=(),
        model="",
        thinking="off",
        marks={},
        trusted=True,
        face="nobody",
    )
    await submit(database, assignment)
    claim = await Claim.take(database, assignment.id, "bench")
    assert claim is not None
    return claim


async def _load(write: Callable[[int], Awaitable[None]], postgres: Postgres) -> tuple[float, float]:
    """Milliseconds of the server's processor for each write, and how many there were in a second."""
    ends_s, done, before_s = time.monotonic() + LOAD_S, [0], _read_server_cpu(postgres)

    async def work(number: int) -> None:
        while time.monotonic() < ends_s:
            await write(number)
            done[0] += 1

    async with asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(work(number))
    return (_read_server_cpu(postgres) - before_s) / done[0] * 1000, done[0] / LOAD_S


def _read_server_cpu(postgres: Postgres) -> float:
    """Of the server and all its processes, those that have ended included."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(folder.name) == postgres.pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == postgres.pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")

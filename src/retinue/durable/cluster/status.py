"""The cluster as somebody who only looks at it sees it: workers, queues, runs, lag.

Ages are counted by the database, so that clocks of machines need not agree. Must not know how any of it is shown.
"""

import time
from typing import Any

import msgspec

from retinue.durable.cluster.database import Database
from retinue.durable.cluster.dbos_queues import QUEUES, TABLE
from retinue.durable.cluster.schema import VERSION

MOST_RUNS = 1000
SHOWN_GONE = "1 hour"
"""Workers that have gone are told of for so long."""


class WorkerState(msgspec.Struct, frozen=True, rename="camel"):
    """One worker."""

    name: str
    host: str
    pid: int
    version: str
    slots: int
    busy: int
    """Runs it works on."""
    started_ago_ms: int
    seen_ago_ms: int
    gone: bool


class QueueState(msgspec.Struct, frozen=True, rename="camel"):
    """One queue: each depth of delegation has its own."""

    name: str
    waiting: int
    working: int


class RunState(msgspec.Struct, frozen=True, rename="camel"):
    """One run that is not finished."""

    id: str
    run_id: str
    attempt: int
    agent: str
    description: str
    status: str
    """`working` or `waiting`."""
    worker: str
    queue: str
    since_ms: int
    """How long it works, or waits."""
    takeovers: int
    """How often another worker had to go on with it."""
    asking_ms: int | None = None
    """How long it waits for its face to judge something; None when it does not."""


class LagState(msgspec.Struct, frozen=True, rename="camel"):
    """How far behind everything is."""

    oldest_waiting_ms: int | None
    """How long the run waits that waits longest; None when none does."""
    round_trip_ms: float
    """What one question to the database takes from here."""


class ClusterState(msgspec.Struct, frozen=True, rename="camel"):
    """Everything there is to see."""

    database: str
    schema: int
    workers: list[WorkerState]
    queues: list[QueueState]
    runs: list[RunState]
    runs_total: int
    lag: LagState

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


async def read_state(database: Database) -> ClusterState:
    """Look at everything."""
    rows = await database.fetch("SELECT to_regclass(%s) IS NOT NULL", TABLE)
    has_engine = bool(rows[0][0])
    begin_s = time.perf_counter()
    await database.fetch("SELECT 1")
    round_trip_ms = (time.perf_counter() - begin_s) * 1000
    runs, total = await _read_runs(database, has_engine=has_engine)
    queues, oldest_ms = await _read_queues(database, has_engine=has_engine)
    return ClusterState(
        database=database.describe().strip("'"),
        schema=VERSION,
        workers=await _read_workers(database),
        queues=queues,
        runs=runs,
        runs_total=total,
        lag=LagState(oldest_ms, round(round_trip_ms, 1)),
    )


async def count_workers(database: Database) -> dict[str, int]:
    """How many workers are there of each version."""
    rows = await database.fetch(
        "SELECT version, count(*) FROM retinue.workers WHERE gone IS NULL GROUP BY version ORDER BY version"
    )
    return {version: count for version, count in rows}


async def _read_workers(database: Database) -> list[WorkerState]:
    rows = await database.fetch(
        "SELECT w.id, w.host, w.pid, w.version, w.slots,"
        " CASE WHEN w.gone IS NULL THEN"
        "  (SELECT count(*) FROM retinue.runs r WHERE r.owner = w.id AND r.finished IS NULL) ELSE 0 END,"
        f" {_ms('w.started')}, {_ms('w.seen')}, w.gone IS NOT NULL FROM retinue.workers w"
        " WHERE w.gone IS NULL OR w.gone > now() - %s::interval"
        " ORDER BY w.gone DESC NULLS FIRST, w.host, w.started, w.id",
        SHOWN_GONE,
    )
    return [WorkerState(*row) for row in rows]


async def _read_runs(database: Database, *, has_engine: bool) -> tuple[list[RunState], int]:
    rows = await database.fetch(
        "SELECT r.id, r.run, r.attempt, r.agent, r.description, p.status, p.worker, r.queue,"
        f" CASE WHEN p.status = 'working' THEN {_ms('coalesce(r.started, r.created)')} ELSE {_ms('r.created')} END,"
        f" greatest(r.epoch - 1, 0), (SELECT max({_ms('c.created')}) FROM retinue.cases c WHERE c.id = r.id AND c.waits"
        " AND c.epoch = r.epoch AND NOT EXISTS (SELECT 1 FROM retinue.words w WHERE w.key = c.key)), count(*) OVER ()"
        f" FROM retinue.runs r JOIN ({_places(has_engine)}) p ON p.id = r.id"
        " ORDER BY p.status DESC, r.created, r.id LIMIT %s",
        MOST_RUNS,
    )
    return [RunState(*row[:-1]) for row in rows], rows[0][-1] if rows else 0


async def _read_queues(database: Database, *, has_engine: bool) -> tuple[list[QueueState], int | None]:
    rows = await database.fetch(
        "SELECT r.queue, count(*) FILTER (WHERE p.status = 'waiting'), count(*) FILTER (WHERE p.status = 'working'),"
        f" max({_ms('r.created')}) FILTER (WHERE p.status = 'waiting')"
        f" FROM retinue.runs r JOIN ({_places(has_engine)}) p ON p.id = r.id GROUP BY r.queue"
    )
    found = {queue: QueueState(queue, waiting, working) for queue, waiting, working, _ in rows}
    waits = [oldest for _, _, _, oldest in rows if oldest is not None]
    return [found.get(name, QueueState(name, 0, 0)) for name in QUEUES], max(waits, default=None)


def _places(has_engine: bool) -> str:
    """Where each unfinished run is: the engine knows best who has taken it, our own table who had it last."""
    if not has_engine:
        return "SELECT id, 'waiting' AS status, '' AS worker FROM retinue.runs WHERE finished IS NULL"
    return (
        "SELECT o.id, CASE WHEN e.status = 'PENDING' THEN 'working' ELSE 'waiting' END AS status,"
        " CASE WHEN e.status = 'PENDING' THEN coalesce(e.executor_id, '') ELSE '' END AS worker"
        f" FROM retinue.runs o LEFT JOIN {TABLE} e ON e.workflow_uuid = o.id WHERE o.finished IS NULL"
    )


def _ms(column: str) -> str:
    """How long ago a time was; a clock that was set back counts as now."""
    return f"greatest(0, extract(epoch FROM now() - {column}) * 1000)::bigint"

"""Inspection of the cluster: workers, queues, runs, pruning, and whether this role can use it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from retinue.core.diagnostics import Item
from retinue.core.environment import WORKER_DIR
from retinue.core.errors import RetinueError
from retinue.durable.cluster.database import Database, NoTables
from retinue.durable.cluster.dbos_queues import QUEUES, TABLE, WaitingRuns, import_engine
from retinue.durable.cluster.schema import VERSION
from retinue.durable.cluster.worker_folder import find_problem, list_remarks
from retinue.durable.recorded_run import SNAPSHOT
from retinue.durable.trouble import TroubleNotifier
from retinue.features.checkpoint.store import CheckpointStore

MOST_RUNS = 1000
SHOWN_GONE = "1 hour"
"""How long workers that have left are listed."""


class WorkerState(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    host: str
    pid: int
    version: str
    slots: int
    busy: int
    """Number of runs it executes."""
    started_ago_ms: int
    seen_ago_ms: int
    gone: bool


class QueueState(msgspec.Struct, frozen=True, rename="camel"):
    """One queue; each depth of delegation has its own."""

    name: str
    waiting: int
    working: int


class RunState(msgspec.Struct, frozen=True, rename="camel"):
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
    """How long it has been working or waiting."""
    takeovers: int
    """How often another worker had to take it over."""
    asking_ms: int | None = None
    """How long it has been waiting for an approval by its front end; None if it is not."""


class LagState(msgspec.Struct, frozen=True, rename="camel"):
    """How far behind the cluster is."""

    oldest_waiting_ms: int | None
    """The longest waiting time of a run; None if none waits."""
    round_trip_ms: float
    """Duration of one database query from here."""


class ClusterState(msgspec.Struct, frozen=True, rename="camel"):
    database: str
    schema: int
    workers: list[WorkerState]
    queues: list[QueueState]
    runs: list[RunState]
    runs_total: int
    lag: LagState


async def read_state(database: Database) -> ClusterState:
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
    """SQL for where each unfinished run is: DBOS knows who has taken it, our table who had it last."""
    if not has_engine:
        return "SELECT id, 'waiting' AS status, '' AS worker FROM retinue.runs WHERE finished IS NULL"
    return (
        "SELECT o.id, CASE WHEN e.status = 'PENDING' THEN 'working' ELSE 'waiting' END AS status,"
        " CASE WHEN e.status = 'PENDING' THEN coalesce(e.executor_id, '') ELSE '' END AS worker"
        f" FROM retinue.runs o LEFT JOIN {TABLE} e ON e.workflow_uuid = o.id WHERE o.finished IS NULL"
    )


def _ms(column: str) -> str:
    """SQL for the age of a time; a clock that was set back gives 0."""
    return f"greatest(0, extract(epoch FROM now() - {column}) * 1000)::bigint"


class KeptRun(msgspec.Struct, frozen=True, rename="camel"):
    """A run that is kept because the database holds the only copy of something."""

    id: str
    run_id: str
    agent: str
    is_heard: bool
    """Whether a front end has taken its outcome."""
    has_changes: bool
    """Whether it has changes that are in no repository."""


class PruneResult(msgspec.Struct, frozen=True):
    removed: dict[str, int]
    """Number of rows by kind."""
    kept: list[KeptRun]


_FIND = f"""
SELECT r.id, r.run, r.assignment->'leases', r.agent, s.heard, NOT s.home AND EXISTS (
    SELECT 1 FROM retinue.records c WHERE c.run = r.run AND c.kind = '{SNAPSHOT}' AND c.path = r.attempt::text),
    -- A run that no worker began was withdrawn by its front end.
    r.epoch > 0 AND NOT (s.heard AND s.home)
FROM retinue.runs r CROSS JOIN LATERAL (
    -- A later attempt includes everything of an earlier one.
    SELECT bool_or(a.heard IS NOT NULL) AS heard, bool_or(a.home IS NOT NULL) AS home
    FROM retinue.runs a WHERE a.run = r.run AND a.attempt >= r.attempt) s
WHERE r.finished < now() - make_interval(days => %s) ORDER BY r.finished, r.id
"""


async def prune(database: Database, waiting: WaitingRuns, days: int, *, everything: bool = False) -> PruneResult:
    """Delete the data of runs that finished more than `days` ago, by the clock of the database.

    What no front end has taken is kept, unless `everything` is set.
    """
    rows = await database.fetch(_FIND, days)
    kept = [] if everything else [KeptRun(row[0], row[1], row[3], row[4], row[5]) for row in rows if row[6]]
    stays = {left.id for left in kept}
    rows = [row for row in rows if row[0] not in stays]
    ids, runs = [row[0] for row in rows], sorted({row[1] for row in rows})
    leases = sorted({lease for row in rows for lease in row[2] or ()})
    # DBOS first: if this is interrupted, the next call finds the runs again.
    await waiting.forget(ids)

    async def remove(connection: Any) -> dict[str, int]:
        return {
            name: int(
                (await connection.execute(sql, {"days": days, "ids": ids, "runs": runs, "leases": leases})).rowcount
            )
            for name, sql in _REMOVALS.items()
        }

    return PruneResult(await database.transact(remove), kept)


_REMOVALS = {
    "runs": "DELETE FROM retinue.runs WHERE id = ANY(%(ids)s)",
    # A record belongs to all attempts of a run, so it stays as long as one of them.
    "records": "DELETE FROM retinue.records WHERE run = ANY(%(runs)s) AND run NOT IN (SELECT run FROM retinue.runs)",
    "events": "DELETE FROM retinue.events WHERE id = ANY(%(ids)s)",
    "words": "DELETE FROM retinue.words WHERE id = ANY(%(ids)s)",
    "cases": "DELETE FROM retinue.cases WHERE id = ANY(%(ids)s)",
    # A front end that was killed during a call leaves its hold behind, which counts as spent.
    "holds": "DELETE FROM retinue.holds h WHERE h.leases && %(leases)s::text[]"
    " AND NOT EXISTS (SELECT 1 FROM retinue.runs r WHERE r.assignment->'leases' ?| h.leases)",
    # Only unused leases: a run whose budget is missing would have no limit.
    "leases": "DELETE FROM retinue.leases l WHERE l.id = ANY(%(leases)s)"
    " AND NOT EXISTS (SELECT 1 FROM retinue.runs r WHERE r.assignment->'leases' ? l.id)"
    " AND NOT EXISTS (SELECT 1 FROM retinue.holds h WHERE l.id = ANY(h.leases))",
    "parcels": "DELETE FROM retinue.parcels p WHERE p.created < now() - make_interval(days => %(days)s)"
    " AND NOT EXISTS (SELECT 1 FROM retinue.runs r WHERE r.assignment->>'digest' = p.digest)",
    "workers": "DELETE FROM retinue.workers WHERE gone < now() - make_interval(days => %(days)s)",
}
"""Runs first: the rest is deleted if no remaining run needs it."""

ASK_S = 5.0
"""How long an inspection waits for the database."""
Value = TypeVar("Value")


def _open(url: str, name: str = "retinue cluster") -> Database:
    """Return a database that is only inspected: nothing is created, and nothing is waited for."""
    return Database(url, name=name, wait_limit_s=0, creates=False)


def read_cluster(url: str) -> ClusterState:
    """Return workers, queues, runs and lag. Raises RetinueError."""
    database = _open(url)

    async def look() -> ClusterState:
        async with database:
            return await read_state(database)

    return asyncio.run(_hurry(look, database.describe()))


def prune_cluster(url: str, days: int, say: Callable[[str], None], *, everything: bool = False) -> PruneResult:
    """Delete the data of runs that finished longer ago; runs not taken by a front end only with `everything`.

    `say` receives what the database waits for. Raises RetinueError.
    """

    async def remove() -> PruneResult:
        async with _open(url) as database, WaitingRuns(url, TroubleNotifier(say)) as waiting:
            return await prune(database, waiting, days, everything=everything)

    return asyncio.run(remove())


def fetch_run(url: str, run: str, store: CheckpointStore) -> str:
    """Put the changes of a finished run on a branch of the current repository; returns its name.

    `store` are the checkpoints of that repository. Raises RetinueError.
    """
    from retinue.durable.cluster.branch_import import fetch_work

    async def fetch() -> str:
        async with _open(url) as database:
            return await fetch_work(database, run, Path.cwd(), store)

    return asyncio.run(fetch())


def check_cluster(url: str, folder: Path, *, is_named: bool) -> list[Item]:
    """Return the cluster checks of `retinue doctor`, which change nothing.

    `folder` is the worker's folder on this machine; `is_named`: the user has chosen it.
    """
    return [*_examine(url), *_examine_folder(folder, is_named=is_named)]


def _examine(url: str) -> list[Item]:
    try:
        database = _open(url, "retinue doctor")
        import_engine()
    except RetinueError as error:
        return [Item("fail", "cluster", "The extra for clusters is not installed", str(error))]

    lacks: list[str] = []

    async def look() -> dict[str, int]:
        try:
            async with database:
                return await count_workers(database)
        finally:
            lacks.extend(await database.find_lacks())

    shown = database.describe().strip("'")
    try:
        # In a thread, because the caller may run an event loop.
        with ThreadPoolExecutor(1) as threads:
            versions = threads.submit(lambda: asyncio.run(_hurry(look, database.describe()))).result()
    except NoTables as error:
        detail = "; ".join((f"{error}: retinue worker", *lacks))
        return [Item("warn", "cluster", f"Database {shown} is empty", detail)]
    except RetinueError as error:
        return [Item("fail", "cluster", "The cluster's database cannot be used", str(error))]
    items = [Item("pass", "cluster", f"Database {shown} reachable", f"tables of version {VERSION}")]
    items += [Item("fail", "cluster", "The cluster's database cannot be written", lack) for lack in lacks]
    if not versions:
        detail = "runs wait for one; start it on any machine: retinue worker"
        return [*items, Item("warn", "cluster", "No worker is running", detail)]
    listed = ", ".join(f"{count} of version {version or 'unknown'}" for version, count in versions.items())
    there = sum(versions.values())
    items.append(Item("pass", "cluster", f"{there} worker{'' if there == 1 else 's'} running", listed))
    own = metadata.version("retinue")
    if set(versions) != {own}:
        detail = f"this program is {own}, the workers are: {listed}; install the same everywhere"
        items.append(Item("warn", "cluster", "Workers of other versions", detail))
    return items


def _examine_folder(folder: Path, *, is_named: bool) -> list[Item]:
    """Check the folder in which a worker on this machine executes runs."""
    if not is_named and not folder.exists():
        return []
    if problem := find_problem(folder):
        detail = f"{folder}: {problem}; fix that, or name another folder by {WORKER_DIR}"
        return [Item("fail", "cluster", "Worker's folder cannot be used", detail)]
    text = "Worker's folder is not suitable"
    remarks = [Item("warn", "cluster", text, f"{folder}: {each}") for each in list_remarks(folder)]
    return [Item("pass", "cluster", "Worker's folder usable", str(folder)), *remarks]


async def _hurry(look: Callable[[], Awaitable[Value]], place: str) -> Value:
    try:
        async with asyncio.timeout(ASK_S):
            return await look()
    except TimeoutError:
        raise RetinueError(f"the database {place} does not answer within {ASK_S:g} s") from None

"""The cluster from outside: what it looks like, tidying it, and whether it can be used."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.diagnostics import Item
from retinue.core.environment import WORKER_DIR
from retinue.core.errors import RetinueError

if TYPE_CHECKING:
    from retinue.durable.cluster.cleanup import Pruned
    from retinue.durable.cluster.status import ClusterState

ASK_S = 5.0
"""What somebody who only looks waits for a database."""
Value = TypeVar("Value")


def read_cluster(url: str) -> "ClusterState":
    """Workers, queues, runs and lag. Raises RetinueError."""
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.status import read_state

    database = Database(url, name="retinue cluster", patience_s=0, creates=False)

    async def look() -> "ClusterState":
        async with database:
            return await read_state(database)

    return asyncio.run(_hurry(look, database.describe()))


def prune_cluster(url: str, days: int, say: Callable[[str], None], *, everything: bool = False) -> "Pruned":
    """Remove what is kept of runs that finished longer ago; what no face has taken home only with `everything`.

    `say` hears what the database waits for. Raises RetinueError.
    """
    from retinue.durable.cluster.cleanup import prune
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.dbos_queues import Waiting
    from retinue.durable.trouble import Alarm

    async def remove() -> "Pruned":
        async with (
            Database(url, name="retinue cluster", patience_s=0, creates=False) as database,
            Waiting(url, Alarm(say)) as waiting,
        ):
            return await prune(database, waiting, days, everything=everything)

    return asyncio.run(remove())


def fetch_run(url: str, run: str) -> str:
    """Put the changes of a finished run on a branch of the repository around us; its name. Raises RetinueError."""
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.late_import import fetch_work

    async def fetch() -> str:
        async with Database(url, name="retinue cluster", patience_s=0, creates=False) as database:
            return await fetch_work(database, run, Path.cwd())

    return asyncio.run(fetch())


def check_cluster(url: str, folder: Path, *, is_named: bool) -> list[Item]:
    """What `retinue doctor` says of the cluster: asks, and changes nothing.

    `folder` is the worker's on this machine; `is_named`: the user has chosen it.
    """
    return [*_examine(url), *_examine_folder(folder, is_named=is_named)]


def _examine(url: str) -> list[Item]:
    from retinue.durable.cluster.database import Database, NoTables
    from retinue.durable.cluster.dbos_queues import import_engine
    from retinue.durable.cluster.schema import VERSION
    from retinue.durable.cluster.status import count_workers

    try:
        database = Database(url, name="retinue doctor", patience_s=0, creates=False)
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
        versions = _run_apart(_hurry(look, database.describe()))
    except NoTables as error:
        detail = "; ".join((f"{error}: retinue worker", *lacks))
        return [Item("warn", "cluster", f"Database {shown} is empty", detail)]
    except RetinueError as error:
        return [Item("fail", "cluster", "The cluster's database cannot be used", str(error))]
    items = [Item("pass", "cluster", f"Database {shown} reachable", f"tables of version {VERSION}")]
    items += [Item("fail", "cluster", "The cluster's database cannot be written", lack) for lack in lacks]
    if not versions:
        detail = "runs wait until there is one; on any machine: retinue worker"
        return [*items, Item("warn", "cluster", "No worker is there", detail)]
    listed = ", ".join(f"{count} of version {version or 'unknown'}" for version, count in versions.items())
    there = sum(versions.values())
    items.append(Item("pass", "cluster", f"{there} worker{'' if there == 1 else 's'} there", listed))
    if set(versions) != {_find_version()}:
        detail = f"this program is {_find_version()}, the workers are: {listed}; install the same everywhere"
        items.append(Item("warn", "cluster", "Workers of other versions", detail))
    return items


def _examine_folder(folder: Path, *, is_named: bool) -> list[Item]:
    """The folder in which runs work, where this is the machine of a worker."""
    from retinue.durable.cluster.worker_folder import find_problem, list_remarks

    if not is_named and not folder.exists():
        return []
    if problem := find_problem(folder):
        detail = f"{folder}: {problem}; mend that, or name another by {WORKER_DIR}"
        return [Item("fail", "cluster", "Worker's folder cannot be used", detail)]
    text = "Worker's folder is no good place"
    remarks = [Item("warn", "cluster", text, f"{folder}: {each}") for each in list_remarks(folder)]
    return [Item("pass", "cluster", "Worker's folder usable", str(folder)), *remarks]


async def _hurry(look: "Callable[[], Coroutine[Any, Any, Value]]", place: str) -> Value:
    try:
        async with asyncio.timeout(ASK_S):
            return await look()
    except TimeoutError:
        raise RetinueError(f"the database {place} does not answer within {ASK_S:g} s") from None


def _run_apart(work: Coroutine[Any, Any, Value]) -> Value:
    """Run something that waits, also for a caller inside of a loop that cannot."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(work)).result()


def _find_version() -> str:
    from importlib.metadata import version

    return version("retinue")

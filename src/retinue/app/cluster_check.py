"""The cluster from outside: which database it is, what it looks like, tidying it, and whether it can be used."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.errors import RetinueError, UsageError
from retinue.settings.paths import find_paths
from retinue.settings.subagents import CrewSettings, find_user_file, load_crew

if TYPE_CHECKING:
    from retinue.durable.cluster.cleanup import Pruned
    from retinue.durable.cluster.status import ClusterState
    from retinue.settings.checkup import Item

ASK_S = 5.0
"""What somebody who only looks waits for a database."""
Value = TypeVar("Value")


def name_database(flag: str, environment: Mapping[str, str]) -> str:
    """The address of the database: the flag's, the environment's, the user's own file's. Raises UsageError for none."""
    found = flag.strip() or _look_up(environment)
    if not found:
        where = find_user_file(find_paths(".", environment))
        raise UsageError(
            "no database is named: give --database postgresql://USER@HOST/NAME, set RETINUE_DATABASE, "
            f"or set cluster.database in {where}"
        )
    return found


def read_cluster(flag: str) -> "ClusterState":
    """Workers, queues, runs and lag. Raises RetinueError."""
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.status import read_state

    database = Database(name_database(flag, os.environ), name="retinue cluster", patience_s=0, creates=False)

    async def look() -> "ClusterState":
        async with database:
            return await read_state(database)

    return asyncio.run(_hurry(look, database.describe()))


def prune_cluster(flag: str, days: int, say: Callable[[str], None], *, everything: bool = False) -> "Pruned":
    """Remove what is kept of runs that finished longer ago; what no face has taken home only with `everything`.

    `say` hears what the database waits for. Raises RetinueError.
    """
    from retinue.durable.cluster.cleanup import prune
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.dbos_queues import Waiting
    from retinue.durable.trouble import Alarm

    url = name_database(flag, os.environ)

    async def remove() -> "Pruned":
        async with (
            Database(url, name="retinue cluster", patience_s=0, creates=False) as database,
            Waiting(url, Alarm(say)) as waiting,
        ):
            return await prune(database, waiting, days, everything=everything)

    return asyncio.run(remove())


def fetch_run(flag: str, run: str) -> str:
    """Put the changes of a finished run on a branch of the repository around us; its name. Raises RetinueError."""
    from retinue.durable.cluster.database import Database
    from retinue.durable.cluster.late_import import fetch_work

    url = name_database(flag, os.environ)

    async def fetch() -> str:
        async with Database(url, name="retinue cluster", patience_s=0, creates=False) as database:
            return await fetch_work(database, run, Path.cwd())

    return asyncio.run(fetch())


def check_cluster(environment: Mapping[str, str]) -> "list[Item]":
    """What `retinue doctor` says of the cluster; nothing where nobody wants one. Asks, and changes nothing."""
    try:
        settings = _load_own(environment)
        url = _look_up(environment)
    except RetinueError:
        return []  # told by others
    if url:
        return [*_examine(url), *_examine_folder(environment)]
    if settings.runner == "cluster":
        from retinue.settings.checkup import Item

        where = find_user_file(find_paths(".", environment))
        detail = (
            f"{where}: runner is cluster: set cluster.database there, or RETINUE_DATABASE; until then runs work here"
        )
        return [Item("warn", "cluster", "No database for runs on other machines", detail)]
    return []


def _examine(url: str) -> "list[Item]":
    from retinue.durable.cluster.database import Database, NoTables
    from retinue.durable.cluster.dbos_queues import import_engine
    from retinue.durable.cluster.schema import VERSION
    from retinue.durable.cluster.status import count_workers
    from retinue.settings.checkup import Item

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


def _examine_folder(environment: Mapping[str, str]) -> "list[Item]":
    """The folder in which runs work, where this is the machine of a worker."""
    from retinue.app.worker import find_worker_dir
    from retinue.core.environment import WORKER_DIR
    from retinue.durable.cluster.worker_folder import find_problem, list_remarks
    from retinue.settings.checkup import Item

    folder = find_worker_dir(environment)
    if not environment.get(WORKER_DIR) and not folder.exists():
        return []
    if problem := find_problem(folder):
        detail = f"{folder}: {problem}; mend that, or name another by {WORKER_DIR}"
        return [Item("fail", "cluster", "Worker's folder cannot be used", detail)]
    text = "Worker's folder is no good place"
    remarks = [Item("warn", "cluster", text, f"{folder}: {each}") for each in list_remarks(folder)]
    return [Item("pass", "cluster", "Worker's folder usable", str(folder)), *remarks]


def _look_up(environment: Mapping[str, str]) -> str:
    from retinue.app.cluster import find_database

    return find_database(_load_own(environment), environment)


def _load_own(environment: Mapping[str, str]) -> CrewSettings:
    # A project's file has no say in this.
    return load_crew(find_paths(".", environment), environment, trusted=False).settings


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

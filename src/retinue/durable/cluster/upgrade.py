"""Upgrades tables of an older version; done by a worker once no worker of the older version is left.

One transaction, under the lock that everyone takes to check the version. A process that was suspended meanwhile can
neither write nor rejoin. Must not know what a step does.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from retinue.core.errors import ConfigError
from retinue.durable.cluster.database import fetch_value
from retinue.durable.cluster.dbos_queues import adopt_runs
from retinue.durable.cluster.schema import STEPS, VERSION
from retinue.durable.trouble import first_line

if TYPE_CHECKING:
    from retinue.durable.cluster.database import Connection

LEASE_S = 10.0
"""A worker without a heartbeat for this long counts as hanging."""
MOST_NAMED = 10


async def upgrade_tables(say: Callable[[str], None], connection: "Connection", found: int, place: str) -> None:
    """Upgrade from version `found` to ours. Raises ConfigError while workers of the older version are alive."""
    import psycopg

    await _refuse_living(connection, found, place)
    try:
        async with connection.transaction():
            for step in STEPS[found:]:
                await connection.execute(step)
            await connection.execute("UPDATE retinue.meta SET version = %s", (VERSION,))
            # A worker that only seemed dead finds itself removed, and its runs fenced by a new epoch.
            await connection.execute(
                "WITH left_behind AS (UPDATE retinue.workers SET gone = now() WHERE gone IS NULL RETURNING id)"
                " UPDATE retinue.runs SET epoch = epoch + 1 FROM left_behind WHERE owner = left_behind.id"
                " AND finished IS NULL"
            )
            await adopt_runs(connection)
    except psycopg.Error as error:
        raise ConfigError(
            f"the tables of the database {place} could not be upgraded and still have version {found}: "
            f"{first_line(error)}"
        ) from error
    say(f"upgraded the tables of {place} from version {found} to {VERSION}")


async def _refuse_living(connection: "Connection", found: int, place: str) -> None:
    cursor = await connection.execute(
        "SELECT id, lock_key, backend, extract(epoch FROM now() - seen)::float FROM retinue.workers"
        " WHERE gone IS NULL ORDER BY host, started, id"
    )
    living = []
    for worker, key, backend, silent_s in await cursor.fetchall():
        if silent_s > LEASE_S:
            await connection.execute("SELECT pg_terminate_backend(%s)", (backend,))
        elif not await _is_free(connection, key):
            living.append(worker)
    if living:
        count, more = len(living), len(living) - MOST_NAMED
        named = ", ".join(living[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise ConfigError(
            f"the database {place} has tables of version {found}, this program knows {VERSION}. It can upgrade them "
            f"when no worker of the older version is left, and {count} {'is' if count == 1 else 'are'}: {named}. "
            f"Stop {'it' if count == 1 else 'them'} (SIGTERM; unfinished runs continue afterwards), then start this one"
        )


async def _is_free(connection: "Connection", key: int) -> bool:
    """Return whether a lock is free; looked up, because taking it could make a reconnecting worker fail."""
    found = await fetch_value(
        connection,
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND classid::bigint = %s AND objid::bigint = %s",
        key >> 32,
        key & 0xFFFF_FFFF,
    )
    return found is None

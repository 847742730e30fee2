"""Deletes the database content of runs that finished long ago, except what exists nowhere else.

Ages are computed by the database, so that clocks of machines need not agree.
"""

from typing import Any

import msgspec

from retinue.durable.cluster.database import Database
from retinue.durable.cluster.dbos_queues import WaitingRuns
from retinue.durable.recorded_run import SNAPSHOT


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

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


_FIND = f"""
SELECT r.id, r.run, r.assignment->'leases', r.agent, s.heard, NOT s.home AND EXISTS (
    SELECT 1 FROM retinue.records c WHERE c.run = r.run AND c.kind = '{SNAPSHOT}' AND c.path = r.attempt::text),
    -- A run that no worker began was withdrawn by its front end.
    r.epoch > 0 AND NOT (s.heard AND s.home)
FROM retinue.runs r CROSS JOIN LATERAL (
    -- A later attempt has all that an earlier one has left.
    SELECT bool_or(a.heard IS NOT NULL) AS heard, bool_or(a.home IS NOT NULL) AS home
    FROM retinue.runs a WHERE a.run = r.run AND a.attempt >= r.attempt) s
WHERE r.finished < now() - make_interval(days => %s) ORDER BY r.finished, r.id
"""


async def prune(database: Database, waiting: WaitingRuns, days: int, *, everything: bool = False) -> PruneResult:
    """Delete the data of runs that finished more than `days` ago.

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

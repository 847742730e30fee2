"""Throwing away what the database keeps of runs that finished long ago, but for what nobody has anywhere else.

Ages are counted by the database, so that clocks of machines need not agree.
"""

from typing import Any

import msgspec

from retinue.durable.cluster.database import Database
from retinue.durable.cluster.dbos_queues import WaitingRuns
from retinue.durable.recorded_run import SNAPSHOT


class Left(msgspec.Struct, frozen=True, rename="camel"):
    """A run that is kept: its record is the only copy of something."""

    id: str
    run_id: str
    agent: str
    is_heard: bool
    """Whether a face has taken its outcome."""
    has_changes: bool
    """Whether it has changed something that is in no repository."""


class Pruned(msgspec.Struct, frozen=True):
    """What was thrown away, and what was not."""

    removed: dict[str, int]
    """How much of each kind."""
    kept: list[Left]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


_FIND = f"""
SELECT r.id, r.run, r.assignment->'leases', r.agent, s.heard, NOT s.home AND EXISTS (
    SELECT 1 FROM retinue.records c WHERE c.run = r.run AND c.kind = '{SNAPSHOT}' AND c.path = r.attempt::text),
    -- What nobody has begun was taken back by the face that had sent it.
    r.epoch > 0 AND NOT (s.heard AND s.home)
FROM retinue.runs r CROSS JOIN LATERAL (
    -- A later attempt has all that an earlier one has left.
    SELECT bool_or(a.heard IS NOT NULL) AS heard, bool_or(a.home IS NOT NULL) AS home
    FROM retinue.runs a WHERE a.run = r.run AND a.attempt >= r.attempt) s
WHERE r.finished < now() - make_interval(days => %s) ORDER BY r.finished, r.id
"""


async def prune(database: Database, waiting: WaitingRuns, days: int, *, everything: bool = False) -> Pruned:
    """Remove what is kept of runs that finished longer ago.

    What no face has taken home stays, unless `everything` may go.
    """
    rows = await database.fetch(_FIND, days)
    kept = [] if everything else [Left(row[0], row[1], row[3], row[4], row[5]) for row in rows if row[6]]
    stays = {left.id for left in kept}
    rows = [row for row in rows if row[0] not in stays]
    ids, runs = [row[0] for row in rows], sorted({row[1] for row in rows})
    leases = sorted({lease for row in rows for lease in row[2] or ()})
    # The engine's first: who is cut off here finds them again the next time.
    await waiting.forget(ids)

    async def remove(connection: Any) -> dict[str, int]:
        return {
            name: int(
                (await connection.execute(sql, {"days": days, "ids": ids, "runs": runs, "leases": leases})).rowcount
            )
            for name, sql in _REMOVALS.items()
        }

    return Pruned(await database.transact(remove), kept)


_REMOVALS = {
    "runs": "DELETE FROM retinue.runs WHERE id = ANY(%(ids)s)",
    # A record belongs to a run, whichever attempt it was: it stays while one of them does.
    "records": "DELETE FROM retinue.records WHERE run = ANY(%(runs)s) AND run NOT IN (SELECT run FROM retinue.runs)",
    "events": "DELETE FROM retinue.events WHERE id = ANY(%(ids)s)",
    "words": "DELETE FROM retinue.words WHERE id = ANY(%(ids)s)",
    "cases": "DELETE FROM retinue.cases WHERE id = ANY(%(ids)s)",
    # A face that was killed in the middle of a call has left one, which counts as spent as long as anybody asks.
    "holds": "DELETE FROM retinue.holds h WHERE h.leases && %(leases)s::text[]"
    " AND NOT EXISTS (SELECT 1 FROM retinue.runs r WHERE r.assignment->'leases' ?| h.leases)",
    # Only those that nobody draws on: a run whose budget is missing would be one without.
    "leases": "DELETE FROM retinue.leases l WHERE l.id = ANY(%(leases)s)"
    " AND NOT EXISTS (SELECT 1 FROM retinue.runs r WHERE r.assignment->'leases' ? l.id)"
    " AND NOT EXISTS (SELECT 1 FROM retinue.holds h WHERE l.id = ANY(h.leases))",
    "parcels": "DELETE FROM retinue.parcels p WHERE p.created < now() - make_interval(days => %(days)s)"
    " AND NOT EXISTS (SELECT 1 FROM retinue.runs r WHERE r.assignment->>'digest' = p.digest)",
    "workers": "DELETE FROM retinue.workers WHERE gone < now() - make_interval(days => %(days)s)",
}
"""Runs first: the rest goes when none that is left needs it."""

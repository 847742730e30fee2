"""Usage limits that all workers honour: one row for each provider and key while its limit lasts.

The row outlives its reset time until a probe has succeeded, so that only one process sends that. Keys are hashes.
"""

from retinue.core.clock import Clock
from retinue.durable.cluster.database import Database

PROBE_S = 600
"""After this time another process may probe: the one that wanted to has probably died."""


class DatabaseGates:
    """The table of closed gates."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read(self, gate: str) -> int:
        rows = await self._database.fetch("SELECT until_ms FROM retinue.gates WHERE name = %s", gate)
        return int(rows[0][0]) if rows else 0

    async def close(self, gate: str, until_ms: int) -> None:
        await self._database.fetch(
            "INSERT INTO retinue.gates AS g (name, until_ms) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE"
            " SET until_ms = excluded.until_ms, probed = NULL WHERE g.until_ms < excluded.until_ms",
            gate,
            until_ms,
        )

    async def claim(self, gate: str, until_ms: int) -> bool:
        rows = await self._database.fetch(
            "UPDATE retinue.gates SET probed = now() WHERE name = %s AND until_ms <= %s"
            f" AND (probed IS NULL OR probed < now() - interval '{PROBE_S} s') RETURNING 1",
            gate,
            self._clock.now_ms(),
        )
        return bool(rows)

    async def open(self, gate: str, until_ms: int) -> None:
        await self._database.fetch(
            "DELETE FROM retinue.gates WHERE name = %s AND until_ms <= %s", gate, self._clock.now_ms()
        )

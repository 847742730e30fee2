"""Usage limits that all workers honour: one row for each provider and key while its limit lasts.

The row outlives its reset time until a probe has succeeded, so that only one process sends that. Keys are hashes.
"""

import asyncio

from retinue.core.clock import Clock
from retinue.durable.cluster.database import Database
from retinue.engine.scope import run_shielded, start_beside

PROBE_S = 600
"""After this time another process may probe: the one that wanted to has probably died."""
_LOOK_S = 1.0
"""While another process probes, this one looks so often whether it may ask."""
_WITHDRAWN_S = 2.0
"""How long a cancelled process tries to withdraw its claim."""


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

    async def claim(self, gate: str) -> int | None:
        claiming = start_beside(self._claim(gate))
        try:
            claim = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await run_shielded(self._withdraw(gate, claiming), _WITHDRAWN_S)
            raise
        if claim is None:
            await self._clock.sleep(_LOOK_S)
        return claim

    async def release(self, gate: str, claim: int) -> None:
        await self._database.fetch("UPDATE retinue.gates SET probed = NULL WHERE name = %s", gate)

    async def open(self, gate: str) -> None:
        await self._database.fetch(
            "DELETE FROM retinue.gates WHERE name = %s AND until_ms <= %s", gate, self._clock.now_ms()
        )

    async def _claim(self, gate: str) -> int | None:
        rows = await self._database.fetch(
            "UPDATE retinue.gates SET probed = now() WHERE name = %s AND until_ms <= %s"
            f" AND (probed IS NULL OR probed < now() - interval '{PROBE_S} s') RETURNING 1",
            gate,
            self._clock.now_ms(),
        )
        if rows:
            return 1
        return None if await self.read(gate) else 0

    async def _withdraw(self, gate: str, claiming: asyncio.Task[int | None]) -> None:
        # The claim may be written already although nobody has got the answer.
        if await claiming:
            await self.release(gate, 1)

"""Budgets that hold over all workers: what a model call may cost is set aside in the database before it is sent.

The same rule as in one process (`engine.budget`), with rows instead of objects. Who dies in the middle of a call has
spent all that was set aside for it: the provider may have counted it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from retinue.core.messages import Cost, Usage
from retinue.core.model import Price
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.record import Claim
from retinue.engine.budget import MIN_OUTPUT, Lease, bound_price, fit_output

HELD_S = 0.5
"""Between two looks at what others hold: most of it comes back when their replies are there."""
MAX_HELD_S = 600.0
"""Longer than a reply takes: what is held until then counts as spent."""
_LATER = -1
_INFINITE = float("inf")


async def open_leases(database: Database, lease: Lease) -> tuple[str, ...]:
    """Put a lease and those above it into the database, once; the keys of those that have a limit."""
    chain = lease.list_limited()
    for one in chain:
        held_tokens, held_usd = one.held  # what is under way counts as spent: nobody will settle it there
        await database.fetch(
            "INSERT INTO retinue.leases (id, tokens, usd, spent_tokens, spent_usd) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            one.key,
            one.tokens,
            one.cost_usd,
            one.spent.total_tokens + held_tokens,
            one.spent.cost.total + held_usd,
        )
    return tuple(one.key for one in chain)


class Purse:
    """What one run, and everything above it, may still spend."""

    def __init__(self, database: Database, run: str, leases: Sequence[str], claim: Claim | None = None) -> None:
        """With a `claim`, whoever has lost it gets nothing."""
        self._database = database
        self._run = run
        self._leases = sorted(leases)
        self._claim = claim
        self.rest = (0.0, 0.0)
        """Tokens and dollars that nobody had spent or held before the last hold."""

    def join(self, leases: Sequence[str]) -> "Purse | None":
        """The same with these leases, too; None where there are none at all."""
        joined = {*self._leases, *leases}
        return Purse(self._database, self._run, [*joined], self._claim) if joined else None

    async def recover(self) -> None:
        """Count as spent what a dead worker had set aside."""
        rows = await self._database.fetch("SELECT id, tokens, usd FROM retinue.holds WHERE run = %s", self._run)
        for hold, tokens, usd in rows:
            await self.settle(hold, Usage(total_tokens=tokens, cost=Cost(total=usd)))

    async def hold(self, hold: str, price: Price, size: int, wanted: int) -> int:
        """Set aside the most a reply can cost, by this name; the tokens of output that it covers, 0 for nothing.

        Where others hold what is needed it waits for them.
        """

        async def take(connection: Any) -> int:
            if self._claim is not None:
                await self._claim.hold_fence(connection)
            cursor = await connection.execute(
                "SELECT tokens - spent_tokens, usd - spent_usd, held_tokens, held_usd FROM retinue.leases"
                " WHERE id = ANY(%s) ORDER BY id FOR UPDATE",
                (self._leases,),
            )
            rows = await cursor.fetchall()
            if len(rows) < len(self._leases):
                return 0  # a lease that nobody knows any more covers nothing
            free = [(_take(tokens, held), _take(usd, held_usd)) for tokens, usd, held, held_usd in rows]
            self.rest = _find_least(free)
            output = fit_output(price, size, wanted, *self.rest)
            if output < MIN_OUTPUT:
                most = fit_output(price, size, wanted, *_find_least(rows))
                return _LATER if most >= MIN_OUTPUT else 0
            tokens, usd = size + output, bound_price(price, size, output)
            done = await connection.execute(
                "INSERT INTO retinue.holds (id, run, leases, tokens, usd) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING RETURNING 1",
                (hold, self._run, self._leases, tokens, usd),
            )
            if await done.fetchone() is not None:
                await connection.execute(
                    "UPDATE retinue.leases SET held_tokens = held_tokens + %s, held_usd = held_usd + %s"
                    " WHERE id = ANY(%s)",
                    (tokens, usd, self._leases),
                )
            return output

        output = await self._database.transact(take)
        # Not for ever: of a face that was killed nobody gives back what it held.
        deadline_s = time.monotonic() + MAX_HELD_S
        while output == _LATER and time.monotonic() < deadline_s:
            await asyncio.sleep(HELD_S)
            output = await self._database.transact(take)
        return max(0, output)

    async def settle(self, hold: str, used: Usage) -> None:
        """Give back what was set aside and note what was used."""

        async def pay(connection: Any) -> None:
            cursor = await connection.execute(
                "DELETE FROM retinue.holds WHERE id = %s RETURNING tokens, usd, leases", (hold,)
            )
            row = await cursor.fetchone()
            if row is None:
                return  # settled already, by whoever took the run over
            tokens, usd, leases = row
            await connection.execute(
                "UPDATE retinue.leases SET held_tokens = held_tokens - %s, held_usd = held_usd - %s,"
                " spent_tokens = spent_tokens + %s, spent_usd = spent_usd + %s WHERE id = ANY(%s)",
                (tokens, usd, used.total_tokens, used.cost.total, leases),
            )

        await self._database.transact(pay)


class SharedBudget:
    """The leases in the database, for the first lease of a process to draw on."""

    def __init__(self, find_purse: Callable[[Sequence[str]], Purse | None], *, is_limit: bool) -> None:
        """`find_purse` gets the keys of the leases here; None where nobody else draws on any of them.

        `is_limit`: whatever works here draws on some.
        """
        self._find_purse = find_purse
        self.is_limit = is_limit
        self.rest = (_INFINITE, _INFINITE)
        """Tokens and dollars that were left when the database was last asked."""
        self._holds: dict[int, tuple[Purse, str]] = {}
        self._last = 0

    async def reserve(self, price: Price, size: int, wanted: int, keys: Sequence[str]) -> tuple[int, int]:
        """Set aside the most a reply can cost: the number of the hold, and the tokens of output it covers or 0."""
        purse = self._find_purse(keys)
        if purse is None:
            return 0, wanted
        hold = uuid4().hex
        try:
            output = await purse.hold(hold, price, size, wanted)
        except asyncio.CancelledError:
            await purse.settle(hold, Usage())
            raise
        self.rest = purse.rest
        if not output:
            return 0, 0
        self._last = number = self._last + 1
        self._holds[number] = purse, hold
        return number, output

    async def settle(self, number: int, used: Usage) -> None:
        """Give a hold back and note what was used."""
        if (held := self._holds.pop(number, None)) is not None:
            purse, hold = held
            await purse.settle(hold, used)


def _find_least(rows: Sequence[Sequence[Any]]) -> tuple[float, float]:
    """The fewest tokens and dollars that any lease has; None is no limit."""
    tokens, usd = (min((row[at] for row in rows if row[at] is not None), default=float("inf")) for at in (0, 1))
    return tokens, usd


def _take(left: Any, held: Any) -> Any:
    """What is left without what is held; None is no limit."""
    return None if left is None else left - held

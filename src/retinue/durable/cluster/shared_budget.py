"""Budgets across all workers: the maximum cost of a model call is reserved in the database before the call.

The same rule as in one process (`engine.budget`), with rows instead of objects. If a process dies during a call, the
whole reservation counts as spent: the provider may have charged it.
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
"""Poll interval while others hold reservations: most of them are returned with their replies."""
MAX_HELD_S = 600.0
"""Longer than any reply takes; what is still held then counts as spent."""
_LATER = -1
_INFINITE = float("inf")


async def open_leases(database: Database, lease: Lease) -> tuple[str, ...]:
    """Store a lease and its ancestors, once; returns the keys of those with a limit."""
    chain = lease.list_limited()
    for one in chain:
        held_tokens, held_usd = one.held  # held counts as spent: it is never settled in the database
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


class RemainingBudget:
    """What one run and its ancestors may still spend."""

    def __init__(self, database: Database, run: str, leases: Sequence[str], claim: Claim | None = None) -> None:
        """With a `claim`, nothing is granted once it is lost."""
        self._database = database
        self._run = run
        self._leases = sorted(leases)
        self._claim = claim
        self.rest = (0.0, 0.0)
        """Tokens and dollars that were free before the last reservation."""

    @property
    def database(self) -> Database:
        return self._database

    def join(self, leases: Sequence[str]) -> "RemainingBudget | None":
        """Return a copy with these additional leases; None if there are none at all."""
        joined = {*self._leases, *leases}
        return RemainingBudget(self._database, self._run, [*joined], self._claim) if joined else None

    async def recover(self) -> None:
        """Count what a dead worker had reserved as spent."""
        rows = await self._database.fetch("SELECT id, tokens, usd FROM retinue.holds WHERE run = %s", self._run)
        for hold, tokens, usd in rows:
            await self.settle(hold, Usage(total_tokens=tokens, cost=Cost(total=usd)))

    async def hold(self, hold: str, price: Price, size: int, wanted: int) -> int:
        """Reserve the maximum cost of a reply under this name; returns the output tokens covered, 0 for none.

        Waits if others hold what is needed.
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
                return 0  # an unknown lease covers nothing
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
        # Bounded, because reservations of a killed front end are never returned.
        deadline_s = time.monotonic() + MAX_HELD_S
        while output == _LATER and time.monotonic() < deadline_s:
            await asyncio.sleep(HELD_S)
            output = await self._database.transact(take)
        return max(0, output)

    async def settle(self, hold: str, used: Usage) -> None:
        """Release a reservation and record what was used."""

        async def pay(connection: Any) -> None:
            cursor = await connection.execute(
                "DELETE FROM retinue.holds WHERE id = %s RETURNING tokens, usd, leases", (hold,)
            )
            row = await cursor.fetchone()
            if row is None:
                return  # already settled by the worker that took the run over
            tokens, usd, leases = row
            await connection.execute(
                "UPDATE retinue.leases SET held_tokens = held_tokens - %s, held_usd = held_usd - %s,"
                " spent_tokens = spent_tokens + %s, spent_usd = spent_usd + %s WHERE id = ANY(%s)",
                (tokens, usd, used.total_tokens, used.cost.total, leases),
            )

        await self._database.transact(pay)


class SharedBudget:
    """The leases in the database, for the root lease of a process to draw on."""

    def __init__(self, find_budget: Callable[[Sequence[str]], RemainingBudget | None], *, is_limit: bool) -> None:
        """`find_budget` receives the keys of local leases; it returns None if no other process draws on them.

        `is_limit`: everything in this process draws on some lease.
        """
        self._find_budget = find_budget
        self.is_limit = is_limit
        self.rest = (_INFINITE, _INFINITE)
        """Tokens and dollars that were left at the last query."""
        self._holds: dict[int, tuple[RemainingBudget, str]] = {}
        self._last = 0

    async def reserve(self, price: Price, size: int, wanted: int, keys: Sequence[str]) -> tuple[int, int]:
        """Reserve the maximum cost of a reply; returns the reservation's number and the output tokens covered, or 0."""
        budget = self._find_budget(keys)
        if budget is None:
            return 0, wanted
        hold = uuid4().hex
        try:
            output = await budget.hold(hold, price, size, wanted)
        except asyncio.CancelledError:
            await budget.settle(hold, Usage())
            raise
        self.rest = budget.rest
        if not output:
            return 0, 0
        self._last = number = self._last + 1
        self._holds[number] = budget, hold
        return number, output

    async def settle(self, number: int, used: Usage) -> None:
        if (held := self._holds.pop(number, None)) is not None:
            budget, hold = held
            await budget.settle(hold, used)


def _find_least(rows: Sequence[Sequence[Any]]) -> tuple[float, float]:
    """Return the fewest tokens and dollars of any lease; None means no limit."""
    tokens, usd = (min((row[at] for row in rows if row[at] is not None), default=float("inf")) for at in (0, 1))
    return tokens, usd


def _take(left: Any, held: Any) -> Any:
    """Subtract what is held; None means no limit."""
    return None if left is None else left - held

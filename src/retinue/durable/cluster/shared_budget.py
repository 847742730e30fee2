"""Budgets that hold over all workers: what a model call may cost is set aside in the database before it is sent.

The same rule as in one process (`engine.budget`), with rows instead of objects. Who dies in the middle of a call has
spent all that was set aside for it: the provider may have counted it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from msgspec import structs

from retinue.core.messages import Cost, Usage
from retinue.core.model import Draft, Failure, Model, ModelInfo, Reply, Request
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.record import Claim
from retinue.engine.budget import MIN_OUTPUT, Lease, bound_input, bound_price, explain_end, fit_output, render_rest

HELD_S = 0.5
"""Between two looks at what others hold: most of it comes back when their replies are there."""
MAX_HELD_S = 600.0
"""Longer than a reply takes: what is held until then counts as spent."""
_LATER = -1


async def open_leases(database: Database, lease: Lease) -> tuple[str, ...]:
    """Put a lease and those above it into the database, once; the keys of those that have a limit."""
    chain: list[Lease] = []
    above: Lease | None = lease
    while above is not None:
        if above.has_limit:
            chain.append(above)
        above = above.parent
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

    async def recover(self) -> None:
        """Count as spent what a dead worker had set aside."""
        rows = await self._database.fetch("SELECT id, tokens, usd FROM retinue.holds WHERE run = %s", self._run)
        for hold, tokens, usd in rows:
            await self.settle(hold, Usage(total_tokens=tokens, cost=Cost(total=usd)))

    async def hold(self, info: ModelInfo, size: int, wanted: int) -> tuple[str, int]:
        """Set aside the most a reply can cost; returns the hold and the tokens of output it covers, 0 for nothing.

        Where others hold what is needed it waits for them.
        """
        hold = uuid4().hex

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
            output = fit_output(info.cost, size, wanted, *_find_least(free))
            if output < MIN_OUTPUT:
                most = fit_output(info.cost, size, wanted, *_find_least(rows))
                return _LATER if most >= MIN_OUTPUT else 0
            tokens, usd = size + output, bound_price(info.cost, size, output)
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
        return hold, max(0, output)

    async def render_rest(self) -> str:
        """What is left, for a person to read."""
        rows = await self._database.fetch(
            "SELECT min(tokens - spent_tokens - held_tokens), min(usd - spent_usd - held_usd) FROM retinue.leases"
            " WHERE id = ANY(%s)",
            self._leases,
        )
        tokens, usd = rows[0]
        return render_rest(float("inf") if tokens is None else tokens, float("inf") if usd is None else usd)

    async def settle(self, hold: str, used: Usage | None) -> None:
        """Give back what was set aside and note what was used; None: all of it."""

        async def pay(connection: Any) -> None:
            cursor = await connection.execute(
                "DELETE FROM retinue.holds WHERE id = %s RETURNING tokens, usd, leases", (hold,)
            )
            row = await cursor.fetchone()
            if row is None:
                return  # settled already, by whoever took the run over
            tokens, usd, leases = row
            spent, cost = (tokens, usd) if used is None else (used.total_tokens, used.cost.total)
            await connection.execute(
                "UPDATE retinue.leases SET held_tokens = held_tokens - %s, held_usd = held_usd - %s,"
                " spent_tokens = spent_tokens + %s, spent_usd = spent_usd + %s WHERE id = ANY(%s)",
                (tokens, usd, spent, cost, leases),
            )

        await self._database.transact(pay)


class SharedBudgetModel:
    """A model that is only asked when the leases in the database cover the answer."""

    def __init__(self, model: Model, find_purse: Callable[[], Purse | None]) -> None:
        """Without a purse the model is asked as it is: nobody else draws on the same leases."""
        self._model = model
        self._find_purse = find_purse

    @property
    def info(self) -> ModelInfo:
        """The model's own."""
        return self._model.info

    def rewrap(self, model: Model) -> Model:
        """The same around another model."""
        return SharedBudgetModel(model, self._find_purse)

    async def reply(self, request: Request, draft: Draft) -> Reply:
        """Set aside, shorten the reply to what is left, ask, settle."""
        info, purse = self._model.info, self._find_purse()
        if purse is None:
            return await self._model.reply(request, draft)
        needed = bound_input(request)
        hold, output = await purse.hold(info, needed, request.max_tokens or info.max_tokens)
        if not output:
            failure = Failure("budget", explain_end(await purse.render_rest(), needed))
            return Reply(draft.finish("error", error=failure.message), failure)
        used: Usage | None = None  # cut off: a budget errs on the safe side
        try:
            reply = await self._model.reply(structs.replace(request, max_tokens=output), draft)
            is_unknown = reply.failure is not None and draft.has_content and not reply.message.usage.total_tokens
            used = None if is_unknown else reply.message.usage
        finally:
            await purse.settle(hold, used)
        return reply


def _find_least(rows: Sequence[Sequence[Any]]) -> tuple[float, float]:
    """The fewest tokens and dollars that any lease has; None is no limit."""
    tokens, usd = (min((row[at] for row in rows if row[at] is not None), default=float("inf")) for at in (0, 1))
    return tokens, usd


def _take(left: Any, held: Any) -> Any:
    """What is left without what is held; None is no limit."""
    return None if left is None else left - held

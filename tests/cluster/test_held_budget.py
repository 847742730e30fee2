"""Runs on workers share a budget: what others hold is waited for, but not for ever."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from retinue.core.messages import Usage
from retinue.core.model import Price
from retinue.durable.cluster import shared_budget
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.shared_budget import RemainingBudget, open_leases
from retinue.engine.budget import Lease

FREE = Price()


@pytest.fixture
async def budgets(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[RemainingBudget]]:
    monkeypatch.setattr(shared_budget, "HELD_S", 0.05)
    async with Database(database) as opened:
        leases = await open_leases(opened, Lease(tokens=10_000))
        yield [RemainingBudget(opened, name, leases) for name in ("one", "two")]


async def test_held_budget_is_waited_for(budgets: list[RemainingBudget]) -> None:
    one, two = budgets
    await one.hold("first", FREE, 1_000, 9_000)
    waiting = asyncio.ensure_future(two.hold("second", FREE, 1_000, 2_000))
    assert await asyncio.wait([waiting], timeout=0.3) == (set(), {waiting})
    await one.settle("first", Usage(total_tokens=3_000))
    assert await asyncio.wait_for(waiting, 5) == 2_000


async def test_lost_hold_counts_as_spent(budgets: list[RemainingBudget], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_budget, "MAX_HELD_S", 0.2)
    one, two = budgets
    await one.hold("first", FREE, 1_000, 9_000)
    assert await asyncio.wait_for(two.hold("second", FREE, 1_000, 2_000), 5) == 0

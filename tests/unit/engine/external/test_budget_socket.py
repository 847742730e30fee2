import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from retinue.core.messages import Cost, Usage
from retinue.core.model import Price
from retinue.engine.budget import Lease
from retinue.engine.external.budget_socket import ParentBudget, ProcessReservations, open_draws

PRICE = Price(input=1, output=10)
INFINITE = float("inf")


class Child:
    """The other end of the line, which says what a test wants."""

    def __init__(self, lease: Lease, draws: ProcessReservations, descriptor: int) -> None:
        self.lease, self.draws = lease, draws
        self.end = socket.socket(fileno=socket.dup(descriptor))
        self.end.settimeout(2)

    async def say(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            self.end.send(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        await asyncio.sleep(0.01)

    def hear(self) -> Any:
        return json.loads(self.end.recv(4096))


def ask(number: int, size: int = 100, wanted: int = 1000) -> dict[str, Any]:
    return {"type": "ask", "number": number, "size": size, "wanted": wanted, "price": {"input": 1, "output": 10}}


def settle(number: int, **used: Any) -> dict[str, Any]:
    return {"type": "settle", "number": number, "used": used}


@pytest.fixture
async def child() -> AsyncIterator[Child]:
    lease = Lease(tokens=5000)
    async with open_draws(lease) as (draws, descriptor):
        made = Child(lease, draws, descriptor)
        yield made
        made.end.close()


async def test_reply_is_held_and_settled(child: Child) -> None:
    await child.say(ask(1))
    assert child.hear() == {"number": 1, "output": 1000, "tokens": 3900, "usd": None}
    assert (child.lease.held[0], child.draws.was_refused) == (1100, False)
    await child.say(settle(1, input=80, output=20, totalTokens=100))
    assert (child.lease.held[0], child.lease.left()[0]) == (0, 4900)
    await child.say(settle(1, input=80, output=20, totalTokens=100), settle(7), ask(1))
    assert (child.hear()["number"], child.lease.left()[0]) == (1, 3800)


async def test_spent_budget_grants_nothing(child: Child) -> None:
    await child.say(ask(1, size=6000))
    assert (child.hear(), child.draws.was_refused) == ({"number": 1, "output": 0, "tokens": 5000, "usd": None}, True)
    await child.say(ask(1))
    assert (child.hear()["output"], child.draws.was_refused) == (1000, False)


@pytest.mark.parametrize("line", [b"{}\n", b"\xff\n", json.dumps(ask(1)).encode() + b"\n", b"x" * (64 * 1024 + 1)])
async def test_what_cannot_be_read_ends_the_exchange(child: Child, line: bytes) -> None:
    await child.say(ask(1))
    child.hear()
    await child.say(line)
    assert child.end.recv(10) == b""
    assert child.lease.held[0] == 1100


async def test_what_is_not_settled_counts_as_spent() -> None:
    lease = Lease(tokens=5000, cost_usd=1.0)
    async with open_draws(lease) as (draws, descriptor):
        child = Child(lease, draws, descriptor)
        await child.say(ask(1), ask(2))
        # Its last words are heard.
        child.end.send(json.dumps(settle(2, input=1, totalTokens=1)).encode() + b"\n")
    child.end.close()
    assert (lease.held[0], lease.spent.total_tokens) == (0, 1101)
    assert lease.spent.cost.total == pytest.approx((100 + 1000 * 10) / 1e6)


async def test_question_that_waits_can_be_taken_back(child: Child) -> None:
    assert child.lease.hold(4900, 0)
    await child.say(ask(1), settle(1))
    child.lease.settle(4900, 0, Usage())
    await child.say(ask(1))
    assert (child.hear()["output"], child.lease.held[0]) == (1000, 1100)


@pytest.fixture
async def budget() -> AsyncIterator[tuple[Lease, ParentBudget]]:
    lease = Lease(tokens=5000)
    async with open_draws(lease) as (_, descriptor):
        yield lease, ParentBudget(socket.socket(fileno=socket.dup(descriptor)))


async def test_budget_of_the_parent_is_asked_for(budget: tuple[Lease, ParentBudget]) -> None:
    lease, source = budget
    assert source.rest == (INFINITE, INFINITE)
    await source.settle(9, Usage())  # nothing was asked for yet
    granted = await asyncio.gather(*(source.reserve(PRICE, 100, wanted) for wanted in (1000, 500)))
    assert (granted, source.rest) == ([(1, 1000), (2, 500)], (3300, INFINITE))
    await source.settle(1, Usage(total_tokens=7, input=7, cost=Cost(total=0.5)))
    await asyncio.sleep(0.01)
    assert (lease.held[0], lease.spent.total_tokens, lease.spent.cost.total) == (600, 7, 0.5)
    assert await source.reserve(PRICE, 9000, 10) == (3, 0)


async def test_cancelled_question_is_settled(budget: tuple[Lease, ParentBudget]) -> None:
    lease, source = budget
    assert lease.hold(4950, 0)
    task = asyncio.create_task(source.reserve(PRICE, 100, 1000))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.01)
    lease.settle(4950, 0, Usage())
    await asyncio.sleep(0.01)
    assert lease.held[0] == 0


async def test_lost_parent_grants_nothing() -> None:
    ours, theirs = socket.socketpair()
    source = ParentBudget(theirs)
    task = asyncio.create_task(source.reserve(PRICE, 1, 1000))
    await asyncio.sleep(0.01)
    ours.close()
    assert (await asyncio.wait_for(task, 5), await source.reserve(PRICE, 1, 1000)) == ((1, 0), (2, 0))


async def test_numbers_are_bounded(child: Child) -> None:
    await child.say(ask(10**15))
    assert child.hear()["number"] == 10**15
    await child.say(ask(10**15 + 1))
    assert child.end.recv(4096) == b""

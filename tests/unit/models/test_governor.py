import asyncio

import pytest

from retinue.core.model import Failure
from retinue.models.governor import Governor
from retinue.models.retry import RetryPolicy
from retinue.testing.clock import FakeClock

BUSY = Failure("overloaded", "busy", retryable=True)


def told(seconds):
    return Failure("rate", "slow down", retryable=True, retry_after_s=seconds)


def make():
    clock = FakeClock()
    return Governor(clock, RetryPolicy()), clock


async def admit_many(governor, clock, count):
    admitted = []

    async def call():
        await governor.admit("p")
        admitted.append(round(clock.steady_s(), 3))

    return admitted, [asyncio.ensure_future(call()) for _ in range(count)]


async def test_free_provider_is_not_held():
    governor, _ = make()
    governor.record("p", None)
    governor.record("p", Failure("auth", "no key"))
    governor.record("p", Failure("network", "reset", retryable=True))
    assert not governor.is_holding("p")


async def test_held_calls_go_in_a_row():
    governor, clock = make()
    governor.record("p", told(10))
    admitted, tasks = await admit_many(governor, clock, 4)
    await clock.advance(9.9)
    assert admitted == []
    await clock.advance(5)
    assert admitted == [10, 10.05, 10.1, 10.15]
    await asyncio.gather(*tasks)


async def test_thousand_calls_return_within_seconds():
    governor, clock = make()
    governor.record("p", told(1))
    admitted, tasks = await admit_many(governor, clock, 1000)
    await clock.advance(13)
    await asyncio.gather(*tasks)
    assert len(admitted) == 1000
    assert len(set(admitted)) > 900


async def test_answer_lifts_the_hold():
    governor, clock = make()
    governor.record("p", told(1))
    governor.record("p", None)
    assert governor.is_holding("p")
    await clock.advance(1)
    governor.record("p", None)
    assert not governor.is_holding("p")


async def test_refusals_together_count_once():
    governor, clock = make()
    for _ in range(8):
        governor.record("p", BUSY)
        await clock.advance(0.01)
    admitted, tasks = await admit_many(governor, clock, 1)
    await clock.advance(2)
    assert admitted == [1]
    await asyncio.gather(*tasks)


async def test_hold_never_grows():
    governor, clock = make()
    for _ in range(9):
        governor.record("p", BUSY)
        await clock.advance(1)
    admitted, tasks = await admit_many(governor, clock, 1)
    await asyncio.gather(*tasks)
    assert admitted == [9]


async def test_busy_provider_keeps_nobody_for_ever():
    governor, clock = make()
    governor.record("p", BUSY)
    admitted, tasks = await admit_many(governor, clock, 3)
    await clock.advance(1)
    governor.record("p", BUSY)
    await clock.advance(0.5)
    assert admitted == [1, 1.05, 1.1]
    await asyncio.gather(*tasks)


async def test_long_wait_is_told_once():
    governor, clock = make()
    governor.record("p", told(30))
    said = []
    tasks = [asyncio.ensure_future(governor.admit("p", said.append)) for _ in range(3)]
    await clock.advance(40)
    await asyncio.gather(*tasks)
    assert said == ["p asked to wait; the next call follows in 30 s"]


async def test_later_refusal_moves_those_who_wait():
    governor, clock = make()
    governor.record("p", told(1))
    admitted, tasks = await admit_many(governor, clock, 2)
    await clock.advance(0.5)
    governor.record("p", told(5))
    await clock.advance(10)
    assert admitted == [5.5, 5.55]
    await asyncio.gather(*tasks)


async def test_absurd_wait_holds_for_the_cap():
    governor, clock = make()
    governor.record("p", told(1e9))
    admitted, tasks = await admit_many(governor, clock, 1)
    await clock.advance(60)
    assert admitted == [60]
    await asyncio.gather(*tasks)


async def test_waiting_can_be_cancelled():
    governor, clock = make()
    governor.record("p", told(10))
    admitted, (task,) = await admit_many(governor, clock, 1)
    await clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert admitted == []


async def test_providers_are_held_apart():
    governor, _ = make()
    governor.record("p", told(10))
    assert governor.is_holding("p")
    assert not governor.is_holding("q")

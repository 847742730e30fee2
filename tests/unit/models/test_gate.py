import asyncio

import pytest

from retinue.core.model import Failure, ModelInfo
from retinue.models.gate import Gates, LimitPause, Passage, name_account, name_gate
from retinue.models.retry import RetryPolicy
from retinue.testing.clock import FakeClock

INFO = ModelInfo("anthropic", "m", "anthropic-messages", account=name_account("key-1"))
OTHER = ModelInfo("anthropic", "m", "anthropic-messages", account=name_account("key-2"))
LIMIT = Failure("rate", "limit", retryable=True, retry_after_s=18_000)
POLICY = RetryPolicy()


class Server:
    """Refuses everything before `opens_ms`; then answers at most `rate` calls at a time."""

    def __init__(self, clock, gates, *, opens_s=18_000, delay_s=1.0):
        self.clock, self.gates, self.delay_s = clock, gates, delay_s
        self.opens_ms = clock.now_ms() + opens_s * 1000
        self.asked: list[float] = []
        self.most = self.now = 0
        self.pauses: list[LimitPause] = []

    async def ask(self, info=INFO):
        while True:
            passage = await self.gates.enter(info, self.pauses.append)
            self.asked.append(self.clock.steady_s())
            self.now += 1
            self.most = max(self.most, self.now)
            await self.clock.sleep(self.delay_s)
            self.now -= 1
            rest_s = (self.opens_ms - self.clock.now_ms()) / 1000
            failure = Failure("rate", "x", retryable=True, retry_after_s=rest_s) if rest_s > 0 else None
            if not self.gates.leave(passage, info, failure, POLICY):
                return


async def finish(clock, tasks, limit_s=100_000):
    while not all(task.done() for task in tasks) and clock.steady_s() < limit_s:
        await clock.advance(10)
    return all(task.done() for task in tasks)


async def test_one_probe_then_more_and_more():
    clock = FakeClock()
    gates = Gates(clock)
    server = Server(clock, gates)
    first = asyncio.create_task(server.ask())
    await clock.advance(2)
    tasks = [first, *(asyncio.create_task(server.ask()) for _ in range(20))]
    await clock.advance(3600)
    assert len(server.asked) == 1
    assert await finish(clock, tasks)
    rounds = [server.asked.count(moment) for moment in dict.fromkeys(server.asked[1:])]
    assert rounds[:4] == [1, 1, 2, 4]
    assert sum(rounds) == 21
    assert gates.list_pauses() == []


async def test_other_key_is_not_held():
    clock = FakeClock()
    gates = Gates(clock)
    assert gates.leave(await gates.enter(INFO), INFO, LIMIT, POLICY)
    passage = await gates.enter(OTHER)
    assert not gates.leave(passage, OTHER, None, POLICY)
    assert gates.list_pauses() == [LimitPause(name_gate(INFO), "anthropic", clock.now_ms() + 18_000_000)]


async def test_second_refusal_closes_again():
    clock = FakeClock()
    gates = Gates(clock)
    server = Server(clock, gates, opens_s=40_000)
    gates.restore(LimitPause(name_gate(INFO), "anthropic", clock.now_ms() + 18_000_000))
    tasks = [asyncio.create_task(server.ask()) for _ in range(3)]
    assert await finish(clock, tasks)
    assert [round(moment, -1) for moment in server.asked[:2]] == [18_000, 40_000]
    assert {pause.until_ms for pause in server.pauses} == {clock._start_ms + 18_000_000, server.opens_ms}


async def test_cancelled_watcher_is_replaced():
    clock = FakeClock()
    gates = Gates(clock)
    server = Server(clock, gates)
    gates.restore(LimitPause(name_gate(INFO), "anthropic", clock.now_ms() + 18_000_000))
    tasks = [asyncio.create_task(server.ask()) for _ in range(3)]
    await clock.advance(100)
    tasks[0].cancel()
    await clock.advance(100)
    assert await finish(clock, tasks[1:])
    assert len(server.asked) == 2


async def test_cancelled_probe_is_replaced():
    clock = FakeClock()
    gates = Gates(clock)
    server = Server(clock, gates, delay_s=500)
    gates.restore(LimitPause(name_gate(INFO), "anthropic", clock.now_ms() + 18_000_000))

    async def probe():
        passage = await gates.enter(INFO)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            gates.give_up(passage)
            raise

    dead = asyncio.create_task(probe())
    await clock.advance(1)
    task = asyncio.create_task(server.ask())
    await clock.advance(18_100)
    assert server.asked == []
    dead.cancel()
    assert await finish(clock, [task])


@pytest.mark.parametrize("told_s", [None, 3])
async def test_short_refusal_of_probe_closes_again(told_s):
    clock = FakeClock()
    gates = Gates(clock)
    gates.restore(LimitPause(name_gate(INFO), "anthropic", clock.now_ms() + 100_000))
    waiting = asyncio.create_task(gates.enter(INFO))
    await clock.advance(101)
    failure = Failure("rate", "x", retryable=True, retry_after_s=told_s)
    assert gates.leave(await waiting, INFO, failure, POLICY)
    assert [pause.until_ms - clock.now_ms() for pause in gates.list_pauses()] == [5000 if told_s else 60_000]


async def test_short_refusal_without_limit_is_no_limit():
    gates = Gates(FakeClock())
    failure = Failure("rate", "x", retryable=True, retry_after_s=60)
    assert not gates.leave(await gates.enter(INFO), INFO, failure, POLICY)
    assert gates.find_pause(INFO) is None


async def test_refusals_of_processes_are_not_prolonged():
    clock = FakeClock()
    gates, now_ms = Gates(clock), clock.now_ms()
    for told_ms in (now_ms + 30_000, now_ms + 30_400, now_ms - 5_000):
        gates.close(Passage(), INFO, told_ms)
    (pause,) = gates.list_pauses()
    assert now_ms + 30_400 <= pause.until_ms <= now_ms + 31_400
    passage = None

    async def enter():
        nonlocal passage
        passage = await gates.enter(INFO)

    task = asyncio.create_task(enter())
    await clock.advance(32)
    assert passage is not None and task.done()
    gates.close(passage, INFO, now_ms)
    assert 0 < gates.list_pauses()[0].until_ms - clock.now_ms() <= 1000

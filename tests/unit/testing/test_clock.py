import asyncio

from retinue.core.events import MessageDelta, RunStarted, TurnStarted
from retinue.core.messages import Usage
from retinue.core.model import Delta
from retinue.testing import EventCollector, FakeClock


async def test_sleepers_wake_in_order() -> None:
    clock = FakeClock(now_ms=1_000)
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, *durations: float) -> None:
        for seconds in durations:
            await clock.sleep(seconds)
            woken.append((name, clock.steady_s()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("late", 3))
        group.create_task(sleep("often", 1, 1, 5))
        await clock.advance(4)
        assert woken == [("often", 1), ("often", 2), ("late", 3)]
        assert (clock.now_ms(), clock.sleeping) == (5_000, 1)
        await clock.advance(3)
    assert woken[-1] == ("often", 7)


async def test_time_stands_without_advance() -> None:
    clock = FakeClock()
    task = asyncio.ensure_future(clock.sleep(0.001))
    await asyncio.sleep(0.01)
    assert (task.done(), clock.steady_s()) == (False, 0)
    task.cancel()
    await clock.advance(1)
    assert (task.cancelled(), clock.sleeping) == (True, 0)


async def test_automatic_clock_jumps() -> None:
    clock = FakeClock(auto=True)
    await clock.sleep(60)
    await clock.sleep(0)
    assert (clock.steady_s(), clock.slept) == (60, [60, 0])


def test_collector_keeps_events() -> None:
    collector = EventCollector()
    delta = MessageDelta(run_id="r", delta=Delta("text_start", 0), usage=Usage())
    told = [RunStarted(run_id="r"), TurnStarted(run_id="r", turn=1), delta]
    for event in told:
        collector(event)
    assert (collector.events, collector.of(TurnStarted)) == (told, [told[1]])
    assert collector.kinds() == ["RunStarted", "TurnStarted", "MessageDelta"]
    assert collector.kinds(live=False) == ["RunStarted", "TurnStarted"]

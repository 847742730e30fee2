import asyncio
import gc

from retinue.engine.manager import Waiters


async def test_only_its_waiters_hear_it():
    bells, waits = Waiters(), (("a", 5), ("a", None), ("b", 0))
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(bells.wait(key, timeout_s)) for key, timeout_s in waits]
        await asyncio.sleep(0)
        bells.ring("a")
    assert [task.result() for task in waiting] == [True, True, False]


async def test_ring_is_not_kept_for_later():
    bells = Waiters()
    bells.ring("a")
    assert await bells.wait("a", 0.001) is False


async def test_cancelled_waiter_is_passed_over():
    bells = Waiters()
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(bells.wait("a", 5)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        bells.ring("a")
    assert (first.cancelled(), second.result()) == (True, True)


async def test_waiters_whose_time_is_over_are_not_kept():
    bells = Waiters()
    for _ in range(50):
        assert await bells.wait("a", 0) is False
    gc.collect()
    futures = [each for each in gc.get_objects() if isinstance(each, asyncio.Future) and each.cancelled()]
    assert len(futures) < 50
    bells.ring("a")

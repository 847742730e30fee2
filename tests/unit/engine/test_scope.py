import asyncio
from contextlib import nullcontext

import pytest

from retinue.core.run import Reason
from retinue.engine.scope import STRAGGLER_S, Scope, run_shielded, run_together


async def hang() -> None:
    await asyncio.sleep(3600)


async def refuse(ended: asyncio.Event) -> None:
    """Does not stop when it is cancelled."""
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError:
            continue


async def test_first_reason_counts() -> None:
    scope = Scope()
    assert scope.cancel(Reason.USER) is False
    task = asyncio.create_task(scope.run(hang()))
    await asyncio.sleep(0)
    assert (scope.cancel(Reason.USER), scope.cancel(Reason.PARENT)) == (True, False)
    assert (await task, task.cancelling(), scope.cancel(Reason.PARENT)) == (Reason.USER, 0, False)


async def test_cancel_from_outside_passes_through() -> None:
    scope = Scope()
    task = asyncio.create_task(scope.run(hang()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scope.reason is None


async def test_time_is_up() -> None:
    assert await Scope().run(hang(), wall_s=0.05) is Reason.WALL_TIMEOUT
    assert await Scope().run(hang(), idle_s=0.05) is Reason.IDLE_TIMEOUT


async def test_timers_end_with_the_work() -> None:
    scope = Scope()
    assert await scope.run(asyncio.sleep(0, "done"), wall_s=0.01, idle_s=0.01) == "done"
    assert await scope.run(asyncio.sleep(0.05, "again")) == "again"


@pytest.mark.parametrize("sign", ["touch", "measure", "pause_idle"])
async def test_signs_of_life_are_no_idleness(sign: str) -> None:
    scope, count = Scope(), 0

    async def work() -> str:
        nonlocal count
        for _ in range(8):
            with scope.pause_idle() if sign == "pause_idle" else nullcontext():
                await asyncio.sleep(0.2)
            if sign == "touch":
                scope.touch()
            count += sign == "measure"
        return "done"

    assert await scope.run(work(), idle_s=1, measure=lambda: count) == "done"


async def test_nested_patience_ends_with_the_last() -> None:
    scope = Scope()

    async def work() -> None:
        with scope.pause_idle():
            with scope.pause_idle():
                pass
            await asyncio.sleep(0.2)
        count.append(1)
        await hang()

    count: list[int] = []
    assert (await scope.run(work(), idle_s=0.08), count) == (Reason.IDLE_TIMEOUT, [1])


async def test_shielded_work_ends_before_the_cancel_is_raised() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append(1)

    task = asyncio.create_task(run_shielded(work(), 5))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


async def test_shielded_work_past_its_limit_may_clean_up() -> None:
    done = []

    async def work() -> None:
        try:
            await hang()
        finally:
            await asyncio.sleep(0.05)
            done.append(1)

    await run_shielded(work(), 0.01)
    assert done == [1]


async def test_shielded_work_that_refuses_is_left_behind() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    start_s = loop.time()
    await run_shielded(refuse(ended), 0.05)
    assert STRAGGLER_S <= loop.time() - start_s < STRAGGLER_S + 1
    ended.set()


async def test_results_are_in_the_order_of_the_works() -> None:
    assert await run_together([asyncio.sleep(0.02, "slow"), asyncio.sleep(0, "quick")]) == ["slow", "quick"]


async def test_cancel_leaves_only_what_refuses_behind() -> None:
    ended, stuck = asyncio.Event(), list[int]()
    task = asyncio.create_task(run_together([hang(), refuse(ended), hang()], stuck.append))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, STRAGGLER_S + 1)
    assert stuck == [1]
    ended.set()

import asyncio

from retinue.engine.backend import LocalBackend


async def test_finished_work_is_forgotten() -> None:
    async with LocalBackend() as backend:
        backend.start("a", asyncio.sleep(0))
        await asyncio.wait_for(backend.wait(), 5)
        assert backend.cancel("a") is False


async def test_end_of_the_first_work_leaves_the_second() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def wait(event: asyncio.Event) -> None:
        await event.wait()

    async with LocalBackend() as backend:
        backend.start("a", wait(first))
        backend.start("a", wait(second))
        first.set()
        await asyncio.sleep(0.01)
        assert backend.cancel("a") is True
        await asyncio.wait_for(backend.wait(), 5)


async def test_leaving_ends_all_work() -> None:
    async with asyncio.timeout(5):
        async with LocalBackend() as backend:
            for name in "ab":
                backend.start(name, asyncio.sleep(3600))
            await asyncio.sleep(0)
    assert [backend.cancel(name) for name in "ab"] == [False, False]

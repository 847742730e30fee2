import pytest
from crew_world import SESSION, script, to

from retinue import Retinue, Status
from retinue.core.errors import RetinueError
from retinue.testing import FakeClock

MINUTE = 60


class Turned(FakeClock):
    """Short waits pass at once, as the model's and the reports' do; minutes are for the test to turn."""

    async def sleep(self, seconds):
        await super().sleep(seconds if seconds >= MINUTE else 0)


async def statuses(crew):
    return [run.status for run in await crew.runs()]


@pytest.mark.spec("fleet:B54")
async def test_read_run_is_forgotten_after_ten_minutes(tmp_path):
    clock = Turned()
    async with Retinue(tmp_path, model=script(tmp_path, to("look", text="Seen")), clock=clock) as crew:
        run = await crew.spawn("Explore", "look")
        await run.wait(5)
        await clock.advance(9 * MINUTE)
        assert await statuses(crew) == [Status.COMPLETED]
        await clock.advance(2 * MINUTE)
        assert await crew.runs() == []
        with pytest.raises(RetinueError, match="Agent not found"):
            await crew.resume(run.id, "again")


async def test_unread_run_stays(tmp_path):
    clock = Turned()
    async with Retinue(tmp_path, model=script(tmp_path, to("look", text="Seen")), clock=clock) as crew:
        run = await crew.spawn("Explore", "look")
        async for _ in run.events():
            pass
        await clock.advance(60 * MINUTE)
        assert await statuses(crew) == [Status.COMPLETED]


@pytest.mark.spec("fleet:B54")
async def test_working_run_is_never_forgotten(tmp_path):
    clock = Turned()
    model = script(tmp_path, to("look", text="Seen", delay_ms=60_000))
    async with Retinue(tmp_path, model=model, clock=clock) as crew:
        await crew.spawn("Explore", "look")
        await clock.advance(60 * MINUTE)
        assert await statuses(crew) == [Status.RUNNING]


async def test_old_runs_are_gone_at_the_next_start(tmp_path):
    model = script(tmp_path, {"text": "Hi"}, to("look", text="Seen"))
    async with Retinue(tmp_path, model=model, request=SESSION, clock=Turned()) as crew:
        await crew.prompt("hi")
        await (await crew.spawn("Explore", "look")).wait(5)
    later = Turned(now_ms=1_700_000_000_000 + 11 * MINUTE * 1000)
    async with Retinue(tmp_path, model=model, request=SESSION, clock=later) as crew:
        assert await crew.runs() == []

import pytest

from retinue import Retinue, Status
from retinue.core.errors import RetinueError
from retinue.testing import FakeClock
from tests.flows.crew_world import SESSION, call, script, to

pytestmark = pytest.mark.here("the test turns the clock")
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
        assert [kept.description for kept in crew.session_runs.runs] == ["look"]  # still seen and counted by front ends
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
        run = await crew.spawn("Explore", "look")
        async for _ in run.events():
            break  # it has begun
        await clock.advance(60 * MINUTE)
        assert await statuses(crew) == [Status.RUNNING]


async def test_told_run_is_forgotten(tmp_path):
    clock = Turned()
    start = call("Agent", prompt="look", description="a look", subagent_type="Explore")
    model = script(tmp_path, to("^go", calls=[start]), to("^look", text="Seen"), to("", text="Fine"))
    async with Retinue(tmp_path, model=model, clock=clock) as crew:
        await crew.prompt("go", settle=True)
        assert [(run.status, run.run.is_read) for run in await crew.runs()] == [(Status.COMPLETED, False)]
        await clock.advance(11 * MINUTE)
        assert await crew.runs() == []


@pytest.mark.spec("fleet:B55")
async def test_unread_run_outlives_its_process(tmp_path):
    model = script(tmp_path, {"text": "Hi"}, to("look", text="Seen"), to("task-notification", text="Heard"))
    async with Retinue(tmp_path, model=model, request=SESSION, clock=Turned()) as crew:
        await crew.prompt("hi")
        read, unread = [await crew.spawn("Explore", f"look {number}") for number in range(2)]
        await read.wait(5)
        async for _ in unread.events():
            pass
    later = Turned(now_ms=1_700_000_000_000 + 24 * 60 * MINUTE * 1000)
    async with Retinue(tmp_path, model=model, request=SESSION, clock=later) as crew:
        assert [run.id for run in await crew.runs()] == [unread.id]
        await later.advance(1)
        await crew.prompt("and?")
        told = [line for line in crew.session_file.read_text().splitlines() if "subagent-notification" in line]
    assert [unread.id in line for line in told] == [True]


@pytest.mark.spec("fleet:B55")
async def test_old_runs_are_gone_at_the_next_start(tmp_path):
    model = script(tmp_path, {"text": "Hi"}, to("look", text="Seen"))
    async with Retinue(tmp_path, model=model, request=SESSION, clock=Turned()) as crew:
        await crew.prompt("hi")
        await (await crew.spawn("Explore", "look")).wait(5)
    later = Turned(now_ms=1_700_000_000_000 + 11 * MINUTE * 1000)
    async with Retinue(tmp_path, model=model, request=SESSION, clock=later) as crew:
        assert await crew.runs() == []

import asyncio

from retinue import Reason, Retinue, Status
from retinue.core.events import RunFinished, TurnStarted
from tests.flows.crew_world import call, script, to

LOOK = call("Agent", subagent_type="Explore", prompt="look", description="a look")
REPLIES = [
    to("^begin", calls=[LOOK]),
    to("^begin", text="started"),
    to("^look", text="the report", delay_ms=100),
]


def ends(crew):
    """How the main agent has ended what it did so far, and an event for the next end."""
    told, event = [], asyncio.Event()

    def hear(item):
        if isinstance(item, RunFinished) and item.run_id == crew.run_id:
            told.append(item.outcome.text)
            event.set()

    crew.listen(hear)
    return told, event


async def test_idle_main_agent_reacts(tmp_path):
    model = script(tmp_path, *REPLIES, to("task-notification", text="Thank you"))
    async with Retinue(tmp_path, model=model) as crew:
        told, event = ends(crew)
        await crew.prompt("begin")
        event.clear()
        await asyncio.wait_for(event.wait(), 5)
    assert told == ["started", "Thank you"]


async def test_prompt_waits_for_the_reaction(tmp_path):
    slow = to("task-notification", text="Thank you", delay_ms=200)
    async with Retinue(tmp_path, model=script(tmp_path, *REPLIES, slow, to("^next", text="Next"))) as crew:
        told, _ = ends(crew)
        await crew.prompt("begin")
        begun = asyncio.Event()
        crew.listen(
            lambda event: begun.set() if isinstance(event, TurnStarted) and event.run_id == crew.run_id else None
        )
        await asyncio.wait_for(begun.wait(), 5)
        outcome = await crew.prompt("next")
    assert (outcome.text, told) == ("Next", ["started", "Thank you", "Next"])


async def test_run_of_the_caller_rouses_nobody(tmp_path):
    model = script(tmp_path, to("^hi", text="Hi"), to("^look", text="the report"), to("^next", text="Next"))
    async with Retinue(tmp_path, model=model) as crew:
        told, _ = ends(crew)
        await crew.prompt("hi")
        run = await crew.spawn("Explore", "look")
        async for _ in run.events():
            pass
        await asyncio.sleep(0.6)
    assert (run.status, told) == (Status.COMPLETED, ["Hi"])


async def test_aborted_main_agent_is_left_alone(tmp_path):
    replies = [to("^begin", calls=[LOOK]), to("^begin", text="started"), to("^look", text="late", delay_ms=400)]
    async with Retinue(tmp_path, model=script(tmp_path, *replies)) as crew:
        told, _ = ends(crew)
        await crew.prompt("begin")
        assert crew.abort()
        await asyncio.sleep(0.5)
    assert told == ["started"]


async def test_abort_ends_the_stay(tmp_path):
    endless = to("^look", text="the report", delay_ms=60_000)
    model = script(tmp_path, *REPLIES[:2], endless, to("task-notification", text="What a pity"))
    async with Retinue(tmp_path, model=model) as crew:
        said = asyncio.Event()
        crew.listen(lambda event: said.set() if getattr(event, "turn", 0) == 2 else None)
        async with asyncio.TaskGroup() as group:
            prompt = group.create_task(crew.prompt("begin", settle=True))
            await asyncio.wait_for(said.wait(), 5)
            await asyncio.sleep(0.05)
            crew.abort()
    outcome = prompt.result()
    assert (outcome.status, outcome.reason, outcome.text) == (Status.STOPPED, Reason.USER, "started")

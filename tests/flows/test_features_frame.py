import asyncio
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from retinue.core.errors import RetinueError
from retinue.core.events import RunFinished
from retinue.core.run import Reason, Status
from retinue.engine.clock import SystemClock
from retinue.engine.limits import Limits
from retinue.engine.runner import LiveRun
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.testing.clock import EventCollector
from tests.run_setup import build_setup


class Mark:
    """A feature that leaves its name everywhere."""

    def __init__(self, name, diary, enter=None, leave=None):
        self.name = name
        self.diary = diary
        self.hooks = {"enter": enter, "leave": leave}

    async def do(self, what):
        self.diary.append(f"{what} {self.name}")
        if (hook := self.hooks[what]) is not None:
            await hook()

    async def enter(self, setup):
        await self.do("enter")
        return setup.change(sections={**setup.sections, self.name: f"<{self.name}>"})

    async def leave(self, outcome):
        await self.do("leave")
        return msgspec.structs.replace(outcome, text=f"{outcome.text} -{self.name}")


def start(replies, *features, **limits):
    clock = SystemClock()
    session = Session.create(cwd="/", directory=None, clock=clock, new_id=lambda: uuid4().hex)
    model = ScriptedModel(parse_script(replies))
    setup = build_setup(
        "r1", Path("/"), model, sections={"preamble": "Hi."}, features=features, limits=Limits(**limits)
    )
    run = LiveRun(setup, session, clock=clock)
    events = EventCollector()
    run.bus.listen(events)
    return run, events


def finished(events):
    return [event.outcome for event in events.events if isinstance(event, RunFinished)]


def fail(error):
    async def hook():
        raise error

    return hook


async def forever():
    await asyncio.sleep(60)


async def test_features_surround_the_run():
    diary = []
    run, events = start([{"text": "done"}], Mark("a", diary), Mark("b", diary))
    outcome = await run.prompt("go")
    assert diary == ["enter a", "enter b", "leave b", "leave a"]
    assert list(run.session.context().sections.values()) == ["Hi.", "<a>", "<b>"]
    assert (outcome.text, outcome.status, finished(events)) == ("done -b -a", Status.COMPLETED, [outcome])


async def test_each_prompt_enters_anew():
    diary = []
    run, _ = start([{"text": "one"}, {"text": "two"}], Mark("a", diary))
    first, second = await run.prompt("go"), await run.prompt("on")
    assert (first.text, second.text, diary) == ("one -a", "two -a", ["enter a", "leave a"] * 2)
    assert run.setup.sections == {"preamble": "Hi."}


@pytest.mark.parametrize(
    ("error", "told"),
    [(RetinueError("no such folder"), "b: no such folder"), (KeyError("x"), "b: KeyError: 'x'")],
)
async def test_failed_entry_is_a_failed_run(error, told):
    diary = []
    run, events = start([{"text": "never"}], Mark("a", diary), Mark("b", diary, enter=fail(error)), Mark("c", diary))
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.error) == (Status.FAILED, Reason.ERROR, told)
    assert diary == ["enter a", "enter b", "leave a"]
    assert (outcome.turns, finished(events)) == (0, [outcome])


async def test_failed_entry_forgets_the_last_prompt():
    broken = []
    run, _ = start([{"text": "one"}], Mark("a", [], enter=lambda: broken[0]() if broken else asyncio.sleep(0)))
    await run.prompt("go")
    broken.append(fail(RetinueError("gone")))
    outcome = await run.prompt("on")
    assert (outcome.text, outcome.turns, outcome.usage.output, outcome.error) == ("", 0, 0, "a: gone")


async def test_failed_leave_keeps_the_text():
    diary = []
    run, events = start([{"text": "done"}], Mark("a", diary), Mark("b", diary, leave=fail(OSError("disk full"))))
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.text) == (Status.FAILED, Reason.ERROR, "done -a")
    assert (outcome.error, diary[-1], finished(events)) == ("b: OSError: disk full", "leave a", [outcome])


async def test_abort_leaves_features():
    diary = []
    run, events = start([{"delay_ms": 60_000, "text": "late"}], Mark("a", diary), Mark("b", diary))
    async with asyncio.TaskGroup() as group:
        prompting = group.create_task(run.prompt("go"))
        while "enter b" not in diary:
            await asyncio.sleep(0.005)
        assert run.abort()
    outcome = prompting.result()
    assert (outcome.status, outcome.reason, diary[2:]) == (Status.STOPPED, Reason.USER, ["leave b", "leave a"])
    assert finished(events) == [outcome]


async def test_abort_works_while_entering():
    diary = []
    run, _ = start([{"text": "never"}], Mark("a", diary), Mark("b", diary, enter=forever))
    async with asyncio.TaskGroup() as group:
        prompting = group.create_task(run.prompt("go"))
        while "enter b" not in diary:
            await asyncio.sleep(0.005)
        run.abort()
    assert (prompting.result().reason, diary) == (Reason.USER, ["enter a", "enter b", "leave a"])


async def test_stuck_leave_is_given_up():
    diary = []
    run, events = start([{"text": "done"}], Mark("a", diary), Mark("b", diary, leave=forever), cleanup_s=0.05)
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.text) == (Status.FAILED, "done")
    assert outcome.error == "b: not undone within 0.05 s; a: not undone within 0.05 s"
    assert (diary[2:], run.is_busy, finished(events)) == (["leave b"], False, [outcome])


async def test_second_cancel_waits_for_cleanup():
    diary = []

    async def slow():
        await asyncio.sleep(0.1)
        diary.append("cleaned")

    run, events = start([{"delay_ms": 60_000, "text": "late"}], Mark("a", diary, leave=slow))
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            prompting = asyncio.ensure_future(run.prompt("go"))
            while "enter a" not in diary:
                await asyncio.sleep(0.005)
            prompting.cancel()
            while "leave a" not in diary:
                await asyncio.sleep(0.005)
            prompting.cancel()
            await prompting
    assert (diary[-1], finished(events)[0].status) == ("cleaned", Status.INTERRUPTED)


async def test_cancel_while_leaving_is_not_lost():
    diary = []

    async def slow():
        await asyncio.sleep(0.1)
        diary.append("cleaned")

    run, events = start([{"text": "done"}], Mark("a", diary, leave=slow))
    prompting = asyncio.ensure_future(run.prompt("go"))
    while "leave a" not in diary:
        await asyncio.sleep(0.005)
    prompting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompting
    assert (diary[-1], finished(events)[0].status) == ("cleaned", Status.COMPLETED)

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from retinue.core.events import (
    Event,
    MessageDelta,
    RunFinished,
    RunProgressed,
    RunStarted,
    ToolProgress,
    TurnStarted,
)
from retinue.core.messages import TextContent, Usage
from retinue.core.model import Delta
from retinue.core.run import Outcome, Reason, Status
from retinue.durable.cluster.worker_events import EventBatches


class FakeClaim:
    def __init__(self) -> None:
        self.assignment = SimpleNamespace(run_id="r")
        self.told: list[tuple[list[Event], Outcome | None]] = []

    async def tell(self, lines: Any, outcome: Outcome | None) -> None:
        self.told.append(([msgspec.json.decode(line, type=Event) for line in lines], outcome))


def say(text: str, index: int = 0) -> MessageDelta:
    return MessageDelta(run_id="r", delta=Delta("text_delta", index, delta=text), usage=Usage())


async def test_pieces_of_text_are_one():
    claim = FakeClaim()
    teller = EventBatches(claim)
    for event in (say("a"), say("b"), say("c", 1), TurnStarted(run_id="r", turn=2), say("d", 1)):
        teller.hear(event)
    await teller.flush()
    assert claim.told == [([say("ab"), say("c", 1), TurnStarted(run_id="r", turn=2), say("d", 1)], None)]


async def test_last_progress_is_enough():
    claim = FakeClaim()
    teller = EventBatches(claim)
    steps = [
        ToolProgress(run_id="r", call_id="c", name="bash", arguments={}, content=[TextContent(text)]) for text in "ab"
    ]
    for step in steps:
        teller.hear(step)
    await teller.flush()
    assert claim.told == [([steps[-1]], None)]


async def test_last_figures_are_enough():
    claim = FakeClaim()
    teller = EventBatches(claim)
    first, second = (RunProgressed(run_id="below", turns=turns) for turns in (1, 2))
    other, start = RunProgressed(run_id="other"), RunStarted(run_id="below")
    for event in (first, start, first, other, second):
        teller.hear(event)
    await teller.flush()
    assert claim.told == [([first, start, other, second], None)]


async def test_nothing_new_is_not_told():
    claim = FakeClaim()
    teller = EventBatches(claim)
    teller.hear(RunStarted(run_id="r"))
    teller.hear(RunFinished(run_id="r", outcome=Outcome(Status.FAILED, Reason.CRASH)))
    await teller.flush()
    assert claim.told == []


async def test_end_is_told_with_rest():
    claim, end = FakeClaim(), Outcome(Status.COMPLETED, Reason.DONE, text="x")
    teller = EventBatches(claim)
    teller.hear(say("a"))
    await teller.flush(end)
    assert claim.told == [([say("a")], end)]


class SlowClaim(FakeClaim):
    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def tell(self, lines: Any, outcome: Outcome | None) -> None:
        self.begun.set()
        await self.may_end.wait()
        await super().tell(lines, outcome)


async def test_what_is_being_told_stays():
    claim, end = SlowClaim(), Outcome(Status.COMPLETED, Reason.DONE, text="x")
    teller = EventBatches(claim)
    async with asyncio.TaskGroup() as group:
        group.create_task(teller.run())
        teller.hear(say("a"))
        await claim.begun.wait()
        teller.hear(say("b"))
        teller.end()
        claim.may_end.set()
    await teller.flush(end)
    assert claim.told == [([say("a")], None), ([say("b")], end)]


async def test_end_is_not_waited_for():
    teller = EventBatches(FakeClaim())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(teller.run())
        await asyncio.sleep(0)
        teller.end()

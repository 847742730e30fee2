import asyncio

import msgspec
import pytest

from retinue.core.events import RunFinished, RunStarted, ToolStarted
from retinue.core.messages import UserMessage
from retinue.core.model import ToolSpec
from retinue.core.run import Reason, Status
from retinue.core.tool import Effect, ToolResult
from tests.flows.test_run import Tool, start


class Reviewer:
    """Sends a run back with the words it is given, one after the other, then lets it pass."""

    def __init__(self, *verdicts):
        self.verdicts = list(verdicts)
        self.seen = []

    async def review(self, outcome):
        self.seen.append(outcome.text)
        verdict = self.verdicts.pop(0) if self.verdicts else None
        return verdict(outcome) if callable(verdict) else verdict


def words(events):
    messages = [event.message for event in events.events if hasattr(event, "message")]
    return [message.content[0].text for message in messages if isinstance(message, UserMessage)]


async def test_reviewer_sends_run_back():
    reviewer = Reviewer("Say more.", "And more.")
    run, events = start([{"text": "one"}, {"text": "two"}, {"text": "three"}], reviewers=[reviewer])
    outcome = await run.prompt("Begin.")
    assert (outcome.status, outcome.text, outcome.turns) == (Status.COMPLETED, "three", 3)
    assert reviewer.seen == ["one", "two", "three"]
    assert words(events) == ["Begin.", "Say more.", "And more."]
    assert len([event for event in events.events if isinstance(event, RunStarted | RunFinished)]) == 2


async def test_outcome_counts_all_conversations():
    replies = [
        {"text": "", "calls": [{"name": "look", "arguments": {}}], "usage": {"input": 10, "output": 1}},
        {"text": "one", "usage": {"input": 20, "output": 2}},
        {"text": "two", "usage": {"input": 40, "output": 4}},
    ]
    run, _ = start(replies, reviewers=[Reviewer("Go on.")])
    outcome = await run.prompt("Begin.")
    assert (outcome.usage.input, outcome.usage.output, outcome.turns, outcome.tool_calls) == (70, 7, 3, 1)


async def test_reviewer_replaces_outcome():
    def fail(outcome):
        return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error="no good")

    second = Reviewer("never asked")
    run, _ = start([{"text": "one"}], reviewers=[Reviewer(fail), second])
    outcome = await run.prompt("Begin.")
    assert (outcome.status, outcome.error, outcome.text, second.seen) == (Status.FAILED, "no good", "one", [])


async def test_stop_reaches_slow_reviewer():
    class Slow:
        async def review(self, outcome):
            begun.set()
            await asyncio.sleep(60)

    begun = asyncio.Event()
    run, _ = start([{"text": "one"}], reviewers=[Slow()])
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        work = group.create_task(run.prompt("Begin."))
        await begun.wait()
        assert run.abort()
    assert (work.result().status, work.result().reason, work.result().text) == (Status.STOPPED, Reason.USER, "one")


@pytest.mark.parametrize("steered", [False, True])
async def test_last_call_ends_run(steered):
    async def finish(arguments):
        if steered:
            run.steer("one more thing")
        return ToolResult.of("done", ends_run=True)

    calls = [{"name": "finish", "arguments": {}}, {"name": "look", "arguments": {"n": 1}}]
    run, events = start([{"text": "bye", "calls": calls}], [Tool("finish", finish)])
    outcome = await run.prompt("Begin.")
    assert (outcome.status, outcome.text, outcome.turns, outcome.tool_calls) == (Status.COMPLETED, "bye", 1, 2)
    assert [event.name for event in events.events if isinstance(event, ToolStarted)] == ["finish", "look"]


async def test_tools_may_come_later():
    class Shelf:
        spec = ToolSpec("shelf", "shelf", {"type": "object", "properties": {}})
        effect, hint, guidelines = Effect.READ, "", ()

        async def call(self, arguments, context):
            run.setup.tools["later"] = Tool("later", answer)
            return ToolResult.of("loaded")

    async def answer(arguments):
        return ToolResult.of("it works")

    replies = [
        {"calls": [{"name": "shelf", "arguments": {}}]},
        {"calls": [{"name": "later", "arguments": {}}]},
        {"text": "done"},
    ]
    run, events = start(replies, [Shelf()])
    assert (await run.prompt("Begin.")).status is Status.COMPLETED
    results = [event.result for event in events.events if hasattr(event, "result")]
    assert [result.content[0].text for result in results] == ["loaded", "it works"]

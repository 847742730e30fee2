"""With `warmFirst` the first of several children fills the provider's prompt cache for the others."""

import asyncio
import json

import pytest

from retinue import Retinue
from retinue.core.messages import AssistantMessage
from retinue.core.model import Failure, ModelInfo, Reply
from retinue.testing import MockServer
from tests.flows.crew_world import to


class SlowModel:
    """Begins each reply when it is told to, and ends it when it is told to."""

    info = ModelInfo("mock", "slow", "mine")

    def __init__(self, *failures):
        self.failures = list(failures)
        self.asked = 0
        self.begins, self.ends = asyncio.Event(), asyncio.Event()

    async def reply(self, request, draft):
        self.asked += 1
        await self.begins.wait()
        if self.failures:
            return Reply(draft.finish("error", error="no"), self.failures.pop())
        if draft.on_begin is not None:
            draft.on_begin()
        if not any(isinstance(message, AssistantMessage) for message in request.messages):
            await self.ends.wait()
        at = draft.open_text()
        draft.add(at, "done")
        draft.close_text(at)
        return Reply(draft.finish("stop"))


async def turn(count=200):
    for _ in range(count):
        await asyncio.sleep(0)


async def wait_until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("failures", [(), (Failure("request", "no"),)])
async def test_first_child_asks_alone_until_its_reply_begins(tmp_path, failures):
    model = SlowModel(*failures)
    async with Retinue(tmp_path, model=model, max_concurrent=8, warm_first=True) as crew:
        runs = [await crew.spawn("general-purpose", f"task {number}") for number in range(5)]
        other = await crew.spawn("Explore", "another prompt")
        await wait_until(lambda: model.asked == 2)
        await turn()
        assert model.asked == 2
        model.begins.set()
        await wait_until(lambda: model.asked == 6)
        model.ends.set()
        ends = [(await run.wait(20)).status for run in [*runs, other]]
    assert sorted(ends) == ["completed"] * (6 - len(failures)) + ["failed"] * len(failures)


async def test_first_byte_from_a_server_is_enough(tmp_path, agent_dir):
    replies = [to("^a", text="begun", fault={"kind": "stall", "at": "mid_text"}), to("^b", text="done")]
    async with MockServer(replies) as server:
        (agent_dir / "models.json").write_text(json.dumps(server.models_json()))
        async with Retinue(tmp_path, model="mock/mock-1", warm_first=True) as crew:
            first = await crew.spawn("general-purpose", "a")
            second = await crew.spawn("general-purpose", "b")
            assert (await second.wait(20)).text == "done"
            assert first.status == "running"


async def test_children_ask_at_once_by_default(tmp_path):
    model = SlowModel()
    async with Retinue(tmp_path, model=model, max_concurrent=8) as crew:
        runs = [await crew.spawn("general-purpose", f"task {number}") for number in range(5)]
        await wait_until(lambda: model.asked == 5)
        model.begins.set()
        model.ends.set()
        assert {(await run.wait(20)).status for run in runs} == {"completed"}

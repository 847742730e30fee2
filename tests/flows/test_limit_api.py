"""Usage limits in Python: a prompt ends or waits, and runs say that they wait."""

import asyncio

from retinue import Reason, Retinue, Status
from retinue.core.model import Failure, ModelInfo, Reply
from retinue.core.tool import ToolContext
from retinue.testing.clock import FakeClock

WINDOW_S = 18_000


class LimitedModel:
    info = ModelInfo("mock", "limited", "mine", account="key-1")

    def __init__(self, clock):
        self.clock = clock
        self.opens_ms = clock.now_ms() + WINDOW_S * 1000

    async def reply(self, request, draft):
        rest_s = (self.opens_ms - self.clock.now_ms()) / 1000
        if rest_s > 0:
            return Reply(draft.finish("error"), Failure("rate", "limit", retryable=True, retry_after_s=rest_s))
        at = draft.open_text()
        draft.add(at, "done")
        draft.close_text(at)
        return Reply(draft.finish("stop"))


async def test_prompt_ends_at_a_limit_or_waits(tmp_path):
    clock = FakeClock()
    model = LimitedModel(clock)
    async with Retinue(tmp_path, model=model, clock=clock) as crew:
        run = await crew.spawn("general-purpose", "look")
        async with asyncio.timeout(10):
            while run.status is not Status.WAITING:
                await asyncio.sleep(0.005)
        assert crew.limits == [("mock", model.opens_ms, 1)]
        listed = await (await crew.open_delegation()).tools["list_subagents"].call({}, ToolContext(cwd=tmp_path))
        assert f"{run.id} | general | waiting | look" in listed.content[0].text
        late = await crew.spawn("general-purpose", "look later")
        ended = await crew.prompt("go", wait=False)
        assert (ended.status, ended.reason) == (Status.INTERRUPTED, Reason.LIMIT)
        assert ended.error.startswith("mock: limit until ") and crew.is_paused
        assert late.status is Status.QUEUED
        task = asyncio.create_task(crew.go_on())
        while not task.done():
            await clock.advance(1000)
        assert (await task).text == "done"
        assert (late.status, crew.limits, crew.is_paused) == (Status.COMPLETED, [], False)

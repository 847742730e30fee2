import asyncio

from retinue.core.events import ModelChanged, RunContinued, RunPaused
from retinue.core.model import Draft, Failure, ModelInfo, ModelRequest, Reply
from retinue.engine.limit_wait import Fallbacks, LimitWait
from retinue.engine.model_choice import LastingWrapper
from retinue.engine.scope import Scope
from retinue.models.gate import Gates, Passage
from retinue.models.retry import RetryPolicy
from retinue.testing.clock import FakeClock

WINDOW_S = 18_000


class Provider:
    def __init__(self, name, clock, opens_s=0):
        self.info = ModelInfo(name, "m", "mine", account="key")
        self.clock, self.opens_s = clock, opens_s
        self.asked = 0

    async def reply(self, request, draft):
        self.asked += 1
        rest_s = self.opens_s - self.clock.steady_s()
        failure = Failure("rate", "limit", retryable=True, retry_after_s=rest_s) if rest_s > 0 else None
        return Reply(draft.finish("error" if failure else "stop"), failure)


async def test_own_model_is_asked_again_when_it_is_open():
    clock, told = FakeClock(), []
    own, other = Provider("own", clock, WINDOW_S), Provider("other", clock)
    fallbacks = Fallbacks([lambda: other], after_s=300)
    wait = LimitWait("run", Gates(clock), Scope(), clock, told.append, RetryPolicy, fallbacks)

    async def ask(seconds):
        request, draft = ModelRequest(system="", messages=[], tools=[]), Draft(own.info, started_ms=clock.now_ms())
        task = asyncio.create_task(wait.ask(own, request, draft))
        while not task.done():
            await clock.advance(seconds)
        return (await task).message.provider

    assert await ask(100) == "other"
    assert 300 <= clock.steady_s() <= 400
    assert await ask(1) == "other"
    await clock.advance(WINDOW_S)
    assert await ask(100) == "own"
    assert (own.asked, other.asked) == (2, 2)
    kinds = [type(event) for event in told if isinstance(event, RunPaused | RunContinued | ModelChanged)]
    assert kinds == [RunPaused, ModelChanged, RunContinued, ModelChanged]


class Wrapper(LastingWrapper):
    """A lasting wrapper that takes its time before each request."""

    def __init__(self, model, name, log, clock):
        self.inner_model, self.name, self.log, self.clock = model, name, log, clock

    @property
    def info(self):
        return self.inner_model.info

    def rewrap(self, model):
        return Wrapper(model, self.name, self.log, self.clock)

    async def reply(self, request, draft):
        self.log.append(self.name)
        await self.clock.sleep(10)
        return await self.inner_model.reply(request, draft)


async def test_wrappers_are_asked_once_and_stay_around_a_fallback():
    clock, log = FakeClock(), []
    own, other = Provider("own", clock, WINDOW_S), Provider("other", clock)
    gates = Gates(clock)
    wait = LimitWait("run", gates, Scope(), clock, log.append, RetryPolicy, Fallbacks([lambda: other], after_s=0))
    model = Wrapper(Wrapper(own, "inner", log, clock), "outer", log, clock)
    draft = Draft(own.info, started_ms=clock.now_ms())
    task = asyncio.create_task(wait.ask(model, ModelRequest(system="", messages=[], tools=[]), draft))
    await clock.advance(5)
    gates.leave(Passage(), own.info, Failure("rate", "limit", retryable=True, retry_after_s=WINDOW_S), RetryPolicy())
    while not task.done():
        await clock.advance(10)
    assert (await task).message.provider == "other"
    assert (own.asked, [each for each in log if isinstance(each, str)]) == (0, ["outer", "inner"])

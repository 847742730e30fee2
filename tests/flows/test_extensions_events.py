import asyncio
import time
from pathlib import Path

import pytest

from retinue.core.events import MessageDelta, RunFinished, RunStarted, Warned
from retinue.engine.bus import Bus
from retinue.features.extensions import handlers
from retinue.features.extensions.registrar import Api, close_api
from tests.flows.extension_world import OpenHandlers

EVENTS = [Warned(run_id="r", text=str(number)) for number in range(5)]


def listen(*functions, event="Warned", **options):
    api = Api("ops", Path("/"), path=__file__)
    for function in functions:
        api.on(event, function)
    return OpenHandlers(close_api(api)[0].handlers, **options)


async def test_handlers_hear_only_their_events():
    heard, late = [], []

    async def keep(event):
        await asyncio.sleep(0)
        late.append(event)

    async with listen(heard.append, keep) as told:
        bus = Bus()
        bus.listen(told, pieces=told.wants_pieces)
        for event in (RunStarted(run_id="r"), *EVENTS):
            bus.publish(event)
        assert (heard, late) == (EVENTS, [])
    assert (late, told.failures, bus.is_watched) == (EVENTS, {}, False)


def test_pieces_are_asked_for_when_wanted():
    assert [listen(print, event=kind).wants_pieces for kind in (MessageDelta, "*", RunFinished)] == [True, True, False]
    assert not listen()


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
async def test_failing_handlers_are_counted(caplog, kind):
    def fall(event):
        raise kind("plain")

    async def fall_later(event):
        raise kind("later")

    async with listen(fall, fall_later) as told:
        for event in EVENTS * 10:
            told(event)
    assert (dict(told.failures), len(caplog.messages)) == ({"ops": 100}, handlers.MAX_LOGGED)
    assert caplog.messages[0].endswith(f": a handler failed: {kind.__name__}: plain")
    assert caplog.messages[0].startswith(f"{__file__}:")


async def test_slow_handler_holds_up_nothing(caplog):
    heard = []

    async def slow(event):
        await asyncio.sleep(60)

    begun_s = time.monotonic()
    async with listen(slow, heard.append, drain_s=0.05) as told:
        for number in range(handlers.MAX_WAITING + 7):
            told(Warned(run_id="r", text=str(number)))
    assert (len(heard), dict(told.dropped)) == (handlers.MAX_WAITING + 7, {"ops": 7})
    assert (caplog.messages, time.monotonic() - begun_s < 2) == (["a handler is too slow; events are dropped"], True)


async def test_stuck_handler_gives_way():
    heard = []

    async def stick(event):
        if event is EVENTS[0]:
            await asyncio.sleep(60)
        heard.append(event)

    async with listen(stick, limit_s=0.05) as told:
        for event in EVENTS:
            told(event)
    assert (heard, dict(told.failures)) == (EVENTS[1:], {"ops": 1})


async def test_blocking_handler_is_told(caplog):
    async with listen(lambda event: time.sleep(handlers.SLOW_S * 1.2)) as told:
        told(EVENTS[0])
    assert caplog.messages == ["a handler blocked everything for 0.1 s; make it async"]


async def test_hidden_coroutine_is_a_mistake():
    async def work(event): ...

    async with listen(lambda event: work(event)) as told:
        told(EVENTS[0])
    assert dict(told.failures) == {"ops": 1}


async def test_cancel_ends_the_workers():
    begun, ended = asyncio.Event(), []

    async def wait(event):
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(event)

    async def serve():
        async with listen(wait, drain_s=0.05) as told:
            told(EVENTS[0])
            await asyncio.sleep(60)

    serving = asyncio.ensure_future(serve())
    await begun.wait()
    begun_s = time.monotonic()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (ended, len(asyncio.all_tasks()), time.monotonic() - begun_s < 1) == ([EVENTS[0]], 1, True)


async def test_errors_pass_unchanged():
    with pytest.raises(ValueError):
        async with listen(print):
            raise ValueError

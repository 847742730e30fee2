import asyncio

from retinue.core.events import RunStarted, ToolProgress, Warned
from retinue.engine.bus import Bus, Subscription

NEWS = Warned(run_id="r", text="news")


def test_leaving_listener_hides_nothing_from_the_next():
    bus, heard = Bus(), []
    stop = bus.listen(lambda event: (heard.append("first"), stop()))
    for name in ("second", "third"):
        bus.listen(lambda event, name=name: heard.append(name))
    bus.publish(NEWS)
    bus.publish(NEWS)
    assert heard == ["first", "second", "third", "second", "third"]


def test_new_listener_hears_from_the_next_event_on():
    bus, heard = Bus(), []
    bus.listen(lambda event: bus.listen(heard.append) if not heard else None)
    bus.publish(NEWS)
    assert heard == []
    bus.publish(NEWS)
    assert heard == [NEWS]


def test_listener_given_twice_is_ended_once_each():
    bus, heard = Bus(), []
    stop, _ = bus.listen(heard.append), bus.listen(heard.append)
    stop()
    stop()
    bus.publish(NEWS)
    assert (heard, bus.is_watched) == ([NEWS], True)


def test_failing_listener_holds_up_nobody(caplog):
    bus, heard = Bus(), []
    bus.listen(lambda event: 1 / 0)
    bus.listen(heard.append)
    bus.publish(NEWS)
    assert (heard, caplog.messages) == ([NEWS], ["a listener failed on Warned"])


def test_facts_are_recorded_before_the_first_is_shown() -> None:
    happened: list[str] = []
    bus = Bus(record_all=lambda events: happened.extend(f"wrote {event.run_id}" for event in events))
    bus.listen(lambda event: happened.append(f"showed {event.run_id}"))
    bus.publish_all([RunStarted(run_id=name, at_ms=1) for name in "ab"])
    assert happened == ["wrote a", "wrote b", "showed a", "showed b"]


async def test_late_reader_loses_pieces_only() -> None:
    bus = Bus()
    queue = Subscription(bound=2)
    queue.stop = bus.listen(queue.put)
    pieces = [ToolProgress(run_id="r", call_id=id, name="n", arguments={}, content=[]) for id in "abc"]
    for event in (*pieces, NEWS):
        bus.publish(event)
    queue.close()
    bus.publish(NEWS)
    assert ([event async for event in queue], queue.dropped) == ([*pieces[:2], NEWS], 1)


def test_pieces_are_wanted_while_somebody_watches() -> None:
    bus = Bus()
    stop_facts, stop_pieces = bus.listen(print, pieces=False), bus.listen(repr)
    seen = [bus.is_watched]
    for stop in (stop_pieces, stop_pieces, stop_facts):
        stop()
        seen.append(bus.is_watched)
    assert seen == [True, False, False, False]
    bus.listen(print)
    assert bus.is_watched


def test_fact_is_recorded_before_it_is_shown() -> None:
    happened: list[str] = []
    bus = Bus(record=lambda event: happened.append("wrote"))
    bus.listen(lambda event: happened.append("showed"))
    bus.publish(NEWS)
    assert happened == ["wrote", "showed"]


def test_listener_hears_its_kinds_only() -> None:
    bus, heard, all_heard = Bus(), list[object](), list[object]()
    bus.listen(heard.append, pieces=False, kinds=(Warned,))
    bus.listen(all_heard.append, pieces=False)
    started = RunStarted(run_id="r", at_ms=1)
    for event in (NEWS, started, NEWS):
        bus.publish(event)
    assert (heard, all_heard, bus.is_watched) == ([NEWS, NEWS], [NEWS, started, NEWS], False)


async def test_reader_gets_what_comes_until_it_is_closed() -> None:
    bus, heard = Bus(), list[object]()
    subscription = Subscription()
    subscription.stop = bus.listen(subscription.put)

    async def read() -> None:
        async for event in subscription:
            heard.append(event)

    reader = asyncio.create_task(read())
    for number in (1, 2):
        await asyncio.sleep(0.01)  # it waits
        assert len(heard) == number - 1
        bus.publish(NEWS)
    await asyncio.sleep(0.01)
    assert (len(heard), bus.is_watched) == (2, True)
    subscription.close()
    await asyncio.wait_for(reader, 5)
    bus.publish(NEWS)
    assert (len(heard), bus.is_watched) == (2, False)

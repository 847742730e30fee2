from retinue.core.events import MessageDelta, RunStarted, TurnStarted
from retinue.core.messages import Usage
from retinue.core.model import Delta
from retinue.testing import EventCollector


def test_collector_keeps_events() -> None:
    collector = EventCollector()
    delta = MessageDelta(run_id="r", delta=Delta("text_start", 0), usage=Usage())
    told = [RunStarted(run_id="r"), TurnStarted(run_id="r", turn=1), delta]
    for event in told:
        collector(event)
    assert (collector.events, collector.of(TurnStarted)) == (told, [told[1]])
    assert collector.kinds() == ["RunStarted", "TurnStarted", "MessageDelta"]
    assert collector.kinds(live=False) == ["RunStarted", "TurnStarted"]

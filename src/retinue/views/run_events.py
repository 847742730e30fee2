"""The events of one run of a crew, from wherever it is now to its end."""

from collections.abc import AsyncIterator

from retinue.core.events import Event, RunFinished, RunStarted
from retinue.core.run import Run
from retinue.engine.bus import Subscription
from retinue.engine.manager import Manager


async def follow_run(manager: Manager, run: Run) -> AsyncIterator[Event]:
    """Its life as the Manager tells it, and, while it works, all that happens in it."""
    events = Subscription(10_000)
    stops = []

    def attach() -> None:
        bus = manager.find_bus(run.id)
        if bus is not None:
            stops.append(bus.listen(lambda event: None if _is_life(event) else events.put(event)))

    def hear(event: Event) -> None:
        if event.run_id != run.id:
            return
        if isinstance(event, RunStarted):
            attach()
        if _is_life(event):
            events.put(event)

    stops.append(manager.root.bus.listen(hear, pieces=False))
    attach()
    try:
        if run.status.is_final:
            return
        async for event in events:
            yield event
    finally:
        for stop in stops:
            stop()


def _is_life(event: Event) -> bool:
    return isinstance(event, RunStarted | RunFinished) or type(event).__name__ in ("RunQueued", "RunSteered")

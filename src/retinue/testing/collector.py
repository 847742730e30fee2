"""Keeps the events that a bus tells it."""

from typing import TypeVar

from retinue.core.events import Event

_E = TypeVar("_E")


class EventCollector:
    """A subscriber that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self, *, live: bool = True) -> list[str]:
        """The names of the events in order; without `live`, deltas and progress are left out."""
        names = [type(event).__name__ for event in self.events]
        return names if live else [name for name in names if name not in ("MessageDelta", "ToolProgress")]

    def of(self, kind: type[_E]) -> list[_E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

"""What became of a crew when its process died: read from the main session, nothing guessed.

Every state was written before anyone saw it, so the entries tell for each run whether it had been accepted, had begun
or had ended. Pure: deciding what to do about it is the Manager's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from retinue.core.events import Event, RunForgotten, RunQueued, RunSteered
from retinue.core.fold import fold
from retinue.core.run import Run
from retinue.engine.request import RunRequest


@dataclass(slots=True)
class Remains:
    """The runs of a session as its last process left them, in the order they were accepted."""

    runs: dict[str, Run] = field(default_factory=dict)
    requests: dict[str, RunRequest] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    """What was said to runs that had not begun."""
    damaged: int = 0
    """Entries that could not be read."""


def read_remains(entries: Iterable[Any]) -> Remains:
    """Fold the crew entries of a main session."""
    remains = Remains()
    for data in entries:
        try:
            event: Event = msgspec.convert(data, type=Event)
            _apply(remains, event)
        except (msgspec.ValidationError, KeyError):
            remains.damaged += 1
    return remains


def _apply(remains: Remains, event: Event) -> None:
    if isinstance(event, RunQueued):
        known = remains.runs.get(event.run_id)
        if known is None:
            remains.runs[event.run_id] = event.run
        else:
            fold(known, event)
        remains.requests[event.run_id] = msgspec.convert(event.request, type=RunRequest)
    elif isinstance(event, RunForgotten):
        del remains.runs[event.run_id], remains.requests[event.run_id]
    else:
        if isinstance(event, RunSteered):
            remains.said.setdefault(event.run_id, []).append(event.text)
        fold(remains.runs[event.run_id], event)

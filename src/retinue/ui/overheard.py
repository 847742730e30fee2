"""The reply that each run is in the middle of, so that whoever begins to look at a run sees it from its first word.

It also is what makes runs receive their replies piece by piece: without a listener they are fetched in one go.
"""

from dataclasses import dataclass, field

from retinue.app.lookout import Lookout
from retinue.core import events as ev


@dataclass(slots=True)
class Partial:
    """A reply so far."""

    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)


class Overheard:
    """Listens to runs that work."""

    def __init__(self) -> None:
        self._partials: dict[str, Partial] = {}

    def hear(self, event: ev.Event, lookout: Lookout) -> None:
        """Follow the life of runs: begin to listen to one that begins."""
        if isinstance(event, ev.RunStarted):
            lookout.overhear(event.run_id, self._take)
        elif isinstance(event, ev.RunFinished):
            self._partials.pop(event.run_id, None)

    def find(self, run_id: str) -> tuple[str, str]:
        """The words and the thoughts of the reply that a run is in the middle of; empty between replies."""
        partial = self._partials.get(run_id, Partial())
        return "".join(partial.words), "".join(partial.thoughts)

    def _take(self, event: ev.Event) -> None:
        if isinstance(event, ev.MessageDelta):
            partial, piece = self._partials.setdefault(event.run_id, Partial()), event.delta.delta
            if isinstance(piece, str) and event.delta.type == "text_delta":
                partial.words.append(piece)
            elif isinstance(piece, str) and event.delta.type == "thinking_delta":
                partial.thoughts.append(piece)
        elif isinstance(event, ev.MessageFinished | ev.MessageStarted):
            self._partials.pop(event.run_id, None)

"""The reply that each run is in the middle of, so that whoever begins to look at a run sees it from its first word.

It also is what makes runs tell of their replies piece by piece: without a listener no event is made of a piece.
"""

from dataclasses import dataclass, field

from retinue.core import events as ev
from retinue.ui.activity import NOTHING, OPENING_CHARS, Glimpse
from retinue.views.runs import Lookout

_ENOUGH = 4 * OPENING_CHARS
"""Characters from which on an answer's beginning is known; blanks come before some."""


@dataclass(slots=True)
class Partial:
    """A reply so far."""

    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    opening: str = ""


class Overheard:
    """Listens to runs that work."""

    def __init__(self) -> None:
        self._partials: dict[str, Partial] = {}
        self._tools: dict[str, dict[str, str]] = {}
        """Names of the tools that work, by run and call."""

    def hear(self, event: ev.Event, lookout: Lookout) -> None:
        """Follow the life of runs: begin to listen to one that begins."""
        if isinstance(event, ev.RunStarted):
            lookout.overhear(event.run_id, self._take)
        elif isinstance(event, ev.RunFinished):
            self._partials.pop(event.run_id, None)
            self._tools.pop(event.run_id, None)

    def glimpse(self, run_id: str) -> Glimpse:
        """What a run does in this moment; cheap, for it is asked many times a second."""
        partial, tools = self._partials.get(run_id), self._tools.get(run_id)
        if partial is None and not tools:
            return NOTHING
        return Glimpse(tuple((tools or {}).values()), "" if partial is None else partial.opening)

    def find(self, run_id: str) -> tuple[str, str]:
        """The words and the thoughts of the reply that a run is in the middle of; empty between replies."""
        partial = self._partials.get(run_id, Partial())
        return "".join(partial.words), "".join(partial.thoughts)

    def _take(self, event: ev.Event) -> None:
        if isinstance(event, ev.MessageDelta):
            partial, piece = self._partials.setdefault(event.run_id, Partial()), event.delta.delta
            if isinstance(piece, str) and event.delta.type == "text_delta":
                partial.words.append(piece)
                if len(partial.opening) < _ENOUGH:
                    partial.opening = (partial.opening + piece).lstrip()[:_ENOUGH]
            elif isinstance(piece, str) and event.delta.type == "thinking_delta":
                partial.thoughts.append(piece)
        elif isinstance(event, ev.ToolStarted):
            self._tools.setdefault(event.run_id, {})[event.call_id] = event.name
        elif isinstance(event, ev.ToolFinished):
            self._tools.get(event.run_id, {}).pop(event.result.tool_call_id, None)
        elif isinstance(event, ev.MessageFinished | ev.MessageStarted):
            self._partials.pop(event.run_id, None)

"""Branch: one line of a session from its root to a leaf, as it was at one moment, read as far as somebody needs.

A session is only ever appended to, so this can be read in another thread while more is written. Must not know how.
"""

from dataclasses import dataclass

from msgspec import UNSET

from retinue.core.collector import paused_collector
from retinue.core.messages import Message, ToolResultMessage
from retinue.sessions.entry import Entry
from retinue.sessions.history import History
from retinue.sessions.view import Context, build_context, read_choice


@dataclass(frozen=True, slots=True)
class Branch:
    """What can be told of a leaf."""

    history: History
    leaf: int
    settled: int
    """Entries before this place are so old that a call without a result in them will never get one."""

    def read_context(self) -> Context:
        """What the model sees."""
        with paused_collector():
            return build_context(self.history.load_branch(self.leaf), self._is_settled)

    def read_choice(self) -> tuple[tuple[str, str] | None, str | None]:
        """The model and the thinking level of the context, without reading the conversation."""
        return read_choice(self.history.load_settings(self.history.index.path(self.leaf)))

    def read_recent(self, count: int) -> tuple[list[Message], bool]:
        """The last messages of the context, about so many, and whether these are all there are."""
        index = self.history.index
        places = index.path(self.leaf)
        first = max(0, len(places) - count)
        if any(index.kinds[place] == "compaction" for place in places[first:]):
            return self.read_context().messages, True
        while first > 0 and not _can_begin(self.history.load_one(places[first])):
            first -= 1
        return build_context(self.history.load(places[first:]), self._is_settled).messages, first == 0

    def passes(self, entry_id: str) -> bool:
        """Whether an entry is on it."""
        index = self.history.index
        return index.by_id[entry_id] in index.path(self.leaf)

    def load_beyond(self, entry_id: str) -> list[Entry]:
        """What is on this branch and not on the way to another entry."""
        index = self.history.index
        shared = set(index.path(index.by_id[entry_id]))
        return self.history.load([place for place in index.path(self.leaf) if place not in shared])

    def _is_settled(self, entry_id: str) -> bool:
        return self.history.index.by_id[entry_id] < self.settled


def _can_begin(entry: Entry) -> bool:
    """Whether nothing belongs to what is before it, as a result does to its call."""
    return entry.message is not UNSET and not isinstance(entry.message, ToolResultMessage)

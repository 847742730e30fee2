"""The entries of a session, and one branch of them from root to leaf, decoded on demand.

Must not know how entries are added or how a context is built.
"""

from typing import Final

from msgspec import UNSET, Struct

from retinue.core.collector import paused_collector
from retinue.core.messages import Message, ToolResultMessage
from retinue.sessions.entry import VERSION, Entry, decode_entry
from retinue.sessions.scan import Index
from retinue.sessions.store import LineStore
from retinue.sessions.view import Context, build_context, read_choice, read_model

_READ_AHEAD: Final = 256
_READ_BYTES: Final = 1024 * 1024


class History:
    """The entries of one session on all branches."""

    __slots__ = ("index", "store", "version")

    def __init__(self, store: LineStore) -> None:
        self.store = store
        self.index = Index()
        self.version = VERSION

    def read(self, place: int) -> bytes:
        return self.store.read(self.index.offsets[place], self.index.lengths[place])

    def load_one(self, place: int) -> Entry:
        return self._decode(place, self.read(place))

    def find_last(self, kind: str) -> Entry | None:
        places = (place for place in reversed(range(len(self.index))) if self.index.kinds[place] == kind)
        place = next(places, None)
        return None if place is None else self.load_one(place)

    def load(self, places: list[int]) -> list[Entry]:
        """Load entries; `places` must be in ascending order."""
        # Adjacent lines are read together: one read call per line would cost more than decoding it.
        index = self.index
        entries = []
        start = end = 0
        block = b""
        with paused_collector():
            for n, place in enumerate(places):
                offset, length = index.offsets[place], index.lengths[place]
                if not start <= offset <= offset + length <= end:
                    last = min(n + _READ_AHEAD, len(places) - 1)
                    start, end = offset, max(offset + length, index.offsets[places[last]] + index.lengths[places[last]])
                    end = max(offset + length, min(end, start + _READ_BYTES))
                    block = self.store.read(start, end - start)
                entries.append(self._decode(place, block[offset - start : offset - start + length]))
        return entries

    def _decode(self, place: int, line: bytes) -> Entry:
        index = self.index
        entry = decode_entry(line)
        entry.id = index.ids[place]
        if self.version < 2 and isinstance(entry.first_kept_entry_index, int):
            # Version 1 counts lines, and the header is line 0.
            kept = entry.first_kept_entry_index - 1
            entry.first_kept_entry_id = index.ids[kept] if 0 <= kept < len(index) else ""
        return entry

    def load_branch(self, leaf: int) -> list[Entry]:
        """Load what a context can need of a branch: everything from the first kept entry of the latest compaction, and
        the last entries before it that set a model and a thinking level.
        """
        places = self.index.path(leaf)
        kinds = self.index.kinds
        last = next((n for n in reversed(range(len(places))) if kinds[places[n]] == "compaction"), None)
        if last is None:
            return self.load(places)
        compaction = self.load_one(places[last])
        first_kept = compaction.first_kept_entry_id
        kept = self.index.by_id.get(first_kept, -1) if isinstance(first_kept, str) else -1
        first = next((n for n in range(last) if places[n] == kept), last)
        earlier = self.load_settings(places[:first])
        return earlier + self.load(places[first:])

    def load_settings(self, places: list[int]) -> list[Entry]:
        """Load the last entry that set a model and the last that set a thinking level, in file order."""
        found: list[Entry] = []
        needs_model = needs_thinking = True
        for place in reversed(places):
            kind = self.index.kinds[place]
            if needs_thinking and kind == "thinking_level_change":
                needs_thinking = False
                found.append(self.load_one(place))
            elif needs_model and kind in ("message", "model_change"):
                entry = self.load_one(place)
                if read_model(entry) is not None:
                    needs_model = False
                    found.append(entry)
        found.reverse()
        return found


class Branch(Struct, frozen=True):
    """One branch of a session, identified by its leaf."""

    history: History
    leaf: int
    settled: int
    """Tool calls without a result in entries before this index will never get one."""

    def read_context(self) -> Context:
        """Build what the model sees."""
        with paused_collector():
            return build_context(self.history.load_branch(self.leaf), self._is_settled)

    def read_choice(self) -> tuple[tuple[str, str] | None, str | None]:
        """Return model and thinking level without reading the conversation."""
        return read_choice(self.history.load_settings(self.history.index.path(self.leaf)))

    def read_recent(self, count: int) -> tuple[list[Message], bool]:
        """Return about the last `count` messages of the context, and whether these are all."""
        index = self.history.index
        places = index.path(self.leaf)
        first = max(0, len(places) - count)
        if any(index.kinds[place] == "compaction" for place in places[first:]):
            return self.read_context().messages, True
        while first > 0 and not _can_begin(self.history.load_one(places[first])):
            first -= 1
        return build_context(self.history.load(places[first:]), self._is_settled).messages, first == 0

    def passes(self, entry_id: str) -> bool:
        index = self.history.index
        return index.by_id[entry_id] in index.path(self.leaf)

    def load_beyond(self, entry_id: str) -> list[Entry]:
        """Load the entries of this branch that are not on the path to another entry."""
        index = self.history.index
        shared = set(index.path(index.by_id[entry_id]))
        return self.history.load([place for place in index.path(self.leaf) if place not in shared])

    def _is_settled(self, entry_id: str) -> bool:
        return self.history.index.by_id[entry_id] < self.settled


def _can_begin(entry: Entry) -> bool:
    """Return whether a list of messages may begin here; a tool result must follow its call."""
    return entry.message is not UNSET and not isinstance(entry.message, ToolResultMessage)

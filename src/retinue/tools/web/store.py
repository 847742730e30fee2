"""Stores search and fetch results so that they can be read again.

They are written to the session; when it is resumed, results younger than an hour are restored.
"""

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

MAX_AGE_MS = 3_600_000
Kind: TypeAlias = Literal["search", "fetch"]


class Stored(Struct, frozen=True):
    """One result with its full text."""

    id: str
    kind: Kind
    data: list[dict[str, Any]]
    """The queries of a search, or the fetched pages."""
    at_ms: int

    def to_record(self) -> dict[str, Any]:
        return {"responseId": self.id, "type": self.kind, "timestamp": self.at_ms, "data": self.data}


class WebStore:
    """The results of one session; the oldest are dropped first."""

    def __init__(
        self,
        most: int,
        *,
        keep: Callable[[dict[str, Any]], None],
        load: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        self._most = most
        self._keep = keep
        self._load: Callable[[], Iterable[Any]] | None = load
        self._found: OrderedDict[str, Stored] = OrderedDict()

    def add(self, kind: Kind, data: list[dict[str, Any]]) -> Stored:
        self._restore()
        stored = Stored(str(uuid.uuid4()), kind, data, time.time_ns() // 1_000_000)
        self._put(stored)
        self._keep(stored.to_record())
        return stored

    def find(self, response_id: str) -> Stored | None:
        self._restore()
        return self._found.get(response_id)

    def _put(self, stored: Stored) -> None:
        self._found[stored.id] = stored
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def _restore(self) -> None:
        """Load what an earlier process left in the session, at first use."""
        load, self._load = self._load, None
        for record in () if load is None else load():
            stored = _read_record(record)
            if stored is not None and time.time_ns() // 1_000_000 - stored.at_ms < MAX_AGE_MS:
                self._put(stored)


def _read_record(record: Any) -> Stored | None:
    """Parse a record of a session, which is untrusted."""
    if not isinstance(record, dict):
        return None
    id_, kind, at_ms, data = (record.get(name) for name in ("responseId", "type", "timestamp", "data"))
    is_right = isinstance(id_, str) and isinstance(at_ms, int) and isinstance(data, list)
    if not is_right or kind not in ("search", "fetch") or not all(isinstance(item, dict) for item in data or ()):
        return None
    return Stored(str(id_), "search" if kind == "search" else "fetch", list(data or ()), int(at_ms or 0))

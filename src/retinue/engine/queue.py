"""Who may start: per parent, first come first served, at most so many at once. Pure bookkeeping, no tasks.

Slots are counted per parent, so that a run that waits for its own children never waits for their place as well.
"""

from collections import OrderedDict


class Queue:
    """Waiting and working runs, by parent."""

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        self._waiting: dict[str, OrderedDict[str, None]] = {}
        self._working: dict[str, set[str]] = {}

    @property
    def limit(self) -> int:
        """How many runs of one parent work at once."""
        return self._limit

    def resize(self, limit: int) -> list[str]:
        """Change the limit; returns the parents whose runs may start now."""
        self._limit = max(1, limit)
        return list(self._waiting)

    def add(self, parent_id: str, run_id: str) -> None:
        """Put a run at the end."""
        self._waiting.setdefault(parent_id, OrderedDict())[run_id] = None

    def take(self, parent_id: str) -> str | None:
        """The next run of this parent that may start, which then holds a slot."""
        waiting = self._waiting.get(parent_id)
        if not waiting or len(self._working.get(parent_id, ())) >= self._limit:
            return None
        run_id, _ = waiting.popitem(last=False)
        if not waiting:
            del self._waiting[parent_id]
        self.occupy(parent_id, run_id)
        return run_id

    def occupy(self, parent_id: str, run_id: str) -> None:
        """Take a slot without waiting for one."""
        self._working.setdefault(parent_id, set()).add(run_id)

    def remove(self, parent_id: str, run_id: str) -> bool:
        """Take a waiting run out; False when it does not wait."""
        waiting = self._waiting.get(parent_id)
        if not waiting or run_id not in waiting:
            return False
        del waiting[run_id]
        if not waiting:
            del self._waiting[parent_id]
        return True

    def release(self, parent_id: str, run_id: str) -> None:
        """Give a slot back."""
        working = self._working.get(parent_id)
        if working is not None:
            working.discard(run_id)
            if not working:
                del self._working[parent_id]

    def is_full(self, parent_id: str) -> bool:
        """Whether a run of this parent would have to wait."""
        return bool(self._waiting.get(parent_id)) or len(self._working.get(parent_id, ())) >= self._limit

"""The run queue: first come, first served, with a limit of concurrent runs per parent. Starts no tasks.

The limit is per parent, so a run that waits for its children never blocks their slots.
"""

from collections import OrderedDict
from collections.abc import Callable


class Queue:
    """Queued and working runs, by parent."""

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self._waiting: dict[str, OrderedDict[str, None]] = {}
        self._working: dict[str, set[str]] = {}

    def resize(self, limit: int) -> list[str]:
        """Change the limit; return the parents that have queued runs."""
        self.limit = max(1, limit)
        return list(self._waiting)

    def add(self, parent_id: str, run_id: str, *, is_first: bool = False) -> None:
        waiting = self._waiting.setdefault(parent_id, OrderedDict())
        waiting[run_id] = None
        waiting.move_to_end(run_id, last=not is_first)

    def take(self, parent_id: str, is_blocked: Callable[[str], bool] = lambda run_id: False) -> str | None:
        """Remove the next run that may start and give it a slot; None if there is none or no slot is free."""
        waiting = self._waiting.get(parent_id)
        if not waiting or len(self._working.get(parent_id, ())) >= self.limit:
            return None
        run_id = next((each for each in waiting if not is_blocked(each)), None)
        if run_id is not None:
            self.remove(parent_id, run_id)
            self.occupy(parent_id, run_id)
        return run_id

    def occupy(self, parent_id: str, run_id: str) -> None:
        """Take a slot even if none is free."""
        self._working.setdefault(parent_id, set()).add(run_id)

    def remove(self, parent_id: str, run_id: str) -> bool:
        """Remove a queued run; False if it is not queued."""
        waiting = self._waiting.get(parent_id)
        if not waiting or run_id not in waiting:
            return False
        del waiting[run_id]
        if not waiting:
            del self._waiting[parent_id]
        return True

    def release(self, parent_id: str, run_id: str) -> None:
        working = self._working.get(parent_id)
        if working is not None:
            working.discard(run_id)
            if not working:
                del self._working[parent_id]

    def is_full(self, parent_id: str) -> bool:
        """Return whether a new run of this parent would have to wait."""
        return bool(self._waiting.get(parent_id)) or len(self._working.get(parent_id, ())) >= self.limit

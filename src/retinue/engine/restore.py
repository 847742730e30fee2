"""Runs of an earlier process on their way back: each after the one that started it. Pure bookkeeping, no tasks.

The directory and the model of a run may be its parent's, so a run waits until that one is at work again.
"""

from collections.abc import Sequence

from retinue.core.run import Run


class Returning:
    """The runs that are to go on and are not at work again yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Run]] = {}
        """By the one that comes back: those below it."""

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._waiting

    def add(self, run: Run) -> bool:
        """Expect a run, whose parent was added before it; whether it may start now."""
        self._waiting[run.id] = []
        above = self._waiting.get(run.parent_id)
        if above is not None:
            above.append(run)
        return above is None

    def settle(self, run_id: str) -> Sequence[Run]:
        """Expect a run no longer, be it at work or gone; returns those that waited for it."""
        return self._waiting.pop(run_id, ())

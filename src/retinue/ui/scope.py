"""What a key would stop, in words, and how often it has been pressed. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from retinue.core.run import Run


def count_working(runs: Iterable[Run]) -> int:
    """How many runs are not finished."""
    return sum(not run.status.is_final for run in runs)


def describe_runs(count: int) -> str:
    """`1 run`, `3 runs`."""
    return f"{count} run{'s' if count != 1 else ''}"


def describe_scope(key: str, count: int) -> str:
    """`esc stops the agent, esc esc 3 runs too`."""
    more = f", {key} {key} {describe_runs(count)} too" if count else ""
    return f"{key} stops the agent{more}"


@dataclass(slots=True)
class Twice:
    """A key that means more when it is pressed again soon."""

    within_s: float
    _last_s: float = float("-inf")

    def press(self, now_s: float) -> bool:
        """Whether this is the second time."""
        is_second = now_s - self._last_s < self.within_s
        self._last_s = float("-inf") if is_second else now_s
        return is_second

    def arm(self, now_s: float) -> None:
        """Count something else as the first time."""
        self._last_s = now_s

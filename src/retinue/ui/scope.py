"""What a key would stop, in words. Pure."""

from collections.abc import Iterable

from retinue.core.run import Run


def count_working(runs: Iterable[Run]) -> int:
    """How many runs are not finished."""
    return sum(not run.status.is_final for run in runs)


def describe_runs(count: int) -> str:
    """`1 run`, `3 runs`."""
    return f"{count} run{'s' if count != 1 else ''}"


def describe_scope(count: int) -> str:
    """`stops the agent and 3 runs`."""
    return f"stops the agent and {describe_runs(count)}" if count else "stops the agent"

"""What a run has used, alone and with its descendants. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from retinue.core.figures import count_noun, count_percent, format_tokens
from retinue.core.messages import Usage
from retinue.core.run import Run, Status


def count_tokens(usage: Usage) -> int:
    """Input, output and cache writes. What is read from a cache is the same prefix again and again, so not counted."""
    return usage.input + usage.output + usage.cache_write


def roll_up(runs: Iterable[Run]) -> dict[str, Usage]:
    """The usage of each run with that of all its descendants, by id; a missing or circular parent ends the walk."""
    known: Mapping[str, Run] = {run.id: run for run in runs}
    totals = {run_id: Usage() for run_id in known}
    for run in known.values():
        seen: set[str] = set()
        above: Run | None = run
        while above is not None and above.id not in seen:
            seen.add(above.id)
            totals[above.id] += run.usage
            above = known.get(above.parent_id)
    return totals


@dataclass(frozen=True, slots=True)
class Figures:
    """What is told about a run's size."""

    tokens: int
    percent: int | None
    """How full its context is; None when that is not known."""
    duration_ms: int


def count_context(run: Run, find_window: Callable[[Run], int | None]) -> int | None:
    """How full a run's context is, in percent; None when that is not known, as after a compaction."""
    return count_percent(run.context_tokens, find_window(run)) if run.context_tokens else None


def measure_ms(run: Run, now_ms: int) -> int:
    """How long a run has worked, or did."""
    if not run.started_ms or run.status is Status.QUEUED:
        return 0
    end_ms = run.finished_ms if run.status.is_final else now_ms
    return max(0, end_ms - run.started_ms)


def render_state(run: Run, figures: Figures) -> str:
    """One line about what a working run has used."""
    parts = [f"{format_tokens(figures.tokens)} token"] if figures.tokens else []
    parts.append(count_noun(run.tool_uses, "tool use"))
    if figures.percent is not None:
        parts.append(f"context {figures.percent}% full")
    if run.compactions:
        parts.append(count_noun(run.compactions, "compaction"))
    return " · ".join(parts)

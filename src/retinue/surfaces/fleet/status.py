"""Maps the engine's states to the words of the `fleet` surface, and counts what runs used. Pure."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.figures import count_noun, format_tokens
from retinue.core.messages import Usage
from retinue.core.run import Reason, Run, Status

Word: TypeAlias = Literal["queued", "running", "waiting", "completed", "steered", "aborted", "stopped", "error"]

ACTIVE: frozenset[Word] = frozenset({"queued", "running", "waiting"})
SUCCESSES: frozenset[Word] = frozenset({"completed", "steered"})

_LABELS: dict[Word, str] = {
    "queued": "Queued",
    "running": "Running",
    "waiting": "Waiting for a usage limit",
    "completed": "Done",
    "steered": "Wrapped up (turn limit)",
    "stopped": "Stopped",
    "aborted": "Aborted (max turns exceeded)",
}
_NOTES: dict[Word, str] = {
    "aborted": " (cut off at the turn limit; the output may be incomplete)",
    "steered": " (asked to wrap up at the turn limit; the output may be partial)",
}
_LIMITS = {
    Reason.WALL_TIMEOUT: "the time limit of the run was reached",
    Reason.IDLE_TIMEOUT: "nothing happened for too long (idle limit)",
    Reason.BUDGET: "the budget is spent",
    Reason.OUTPUT_LIMIT: "its process printed too much",
    Reason.DEPTH: "subagents are nested too deeply",
    Reason.CRASH: "the run broke off",
    Reason.PARENT: "the run was interrupted",
}


def describe_machine(name: str) -> dict[str, str]:
    return {"worker": name}


def describe_machines(runs: Iterable[Run]) -> dict[str, dict[str, str]]:
    machines = {run.id: run.machine for run in runs if run.machine}
    return {"workers": machines} if machines else {}


def to_word(run: Run) -> Word:
    """Return the surface's word for the state of a run."""
    outcome = run.outcome
    if run.status is Status.QUEUED or run.status is Status.WAITING:
        return "queued" if run.status is Status.QUEUED else "waiting"
    if run.status is Status.RUNNING or outcome is None:
        return "running"
    if run.status is Status.COMPLETED:
        return "steered" if outcome.reason is Reason.TURN_LIMIT_WRAPPED else "completed"
    if run.status is Status.STOPPED and outcome.reason is Reason.TURN_LIMIT:
        return "aborted"
    if run.status is Status.STOPPED and outcome.reason in (Reason.USER, Reason.PARENT):
        return "stopped"
    return "error"


def explain_error(run: Run) -> str:
    """Return why a run failed; empty if its state is not `error`."""
    if to_word(run) != "error" or run.outcome is None:
        return ""
    return run.outcome.error or _LIMITS.get(run.outcome.reason, "unknown error")


def note_status(run: Run) -> str:
    """Return a remark about incomplete output, so that a partial result is not taken for a complete one."""
    word = to_word(run)
    if word != "stopped" or run.outcome is None:
        return _NOTES.get(word, "")
    if run.outcome.reason is Reason.PARENT:
        return " (stopped together with the agent that started it; the output is partial, the task is NOT finished)"
    return " (STOPPED BY THE USER; the output is partial, the task is NOT finished)"


def name_agent(run: Run) -> str:
    """Return the display name of a run's agent."""
    return str(run.invocation.get("displayName") or run.agent)


def label_status(run: Run) -> str:
    """Return the status as a heading for people."""
    word = to_word(run)
    return f"Error: {explain_error(run)}" if word == "error" else _LABELS[word]


def roll_up(runs: Iterable[Run]) -> dict[str, Usage]:
    """Return the usage of each run including its descendants, by id; handles missing and circular parents."""
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


class Figures(Struct, frozen=True):
    tokens: int
    percent: int | None
    """How full its context is; None if unknown, such as after a compaction."""
    duration_ms: int


def measure_ms(run: Run, now_ms: int) -> int:
    if not run.started_ms or run.status is Status.QUEUED:
        return 0
    end_ms = run.finished_ms if run.status.is_final else now_ms
    return max(0, end_ms - run.started_ms)


def render_state(run: Run, figures: Figures) -> str:
    """Return one line about what a working run has used."""
    parts = [f"{format_tokens(figures.tokens)} token"] if figures.tokens else []
    parts.append(count_noun(run.tool_uses, "tool use"))
    if figures.percent is not None:
        parts.append(f"context {figures.percent}% full")
    if run.compactions:
        parts.append(count_noun(run.compactions, "compaction"))
    return " · ".join(parts)

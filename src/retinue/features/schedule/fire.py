"""One fire of a job and what it does to the record: claimed before the agent starts, settled when it has ended. Pure.

Edits are given the record as the file has it at that moment, which others may have changed. Must not know runs.
"""

from dataclasses import dataclass
from datetime import tzinfo

from msgspec import UNSET
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.features.schedule.due import find_next
from retinue.features.schedule.job import Job
from retinue.features.schedule.store import Edit, ScheduleStore
from retinue.features.schedule.zone import to_iso


@dataclass(frozen=True, slots=True)
class Fire:
    """A due time that was claimed: its agent may be started, once."""

    store: ScheduleStore
    job: Job
    due_ms: int
    note: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Tells jobs apart across sessions."""
        return str(self.store.path), self.job.id


@dataclass(frozen=True, slots=True)
class Ended:
    """How a fire ended."""

    fire: Fire
    succeeded: bool
    counts: bool
    """A run has ended; False when none could be started."""
    error: str = ""


def claim(due_ms: int, now_ms: int, zone: tzinfo) -> Edit:
    """Record a due time as running and set the next one; a job that must not fire stays as it is."""

    def edit(job: Job) -> Job:
        if not job.is_enabled:
            return job
        try:
            next_ms = find_next(job, now_ms, zone, due_ms=due_ms)
        except UsageError:
            return job  # edited into something that cannot be used; arming it again says so
        return replace(
            job,
            enabled=next_ms is not None,
            last_run=to_iso(due_ms),
            last_status="running",
            next_run=UNSET if next_ms is None else to_iso(next_ms),
        )

    return edit


def settle(ended: Ended, now_ms: int, zone: tzinfo) -> Edit:
    """Record how a fire ended."""
    due_ms = ended.fire.due_ms

    def edit(job: Job) -> Job:
        # What fell due while the run went on is left out: a job does not overlap or chase itself.
        try:
            next_ms = find_next(job, now_ms, zone, due_ms=due_ms) if job.is_enabled else None
        except UsageError:
            next_ms = None
        return replace(
            job,
            last_run=to_iso(max(now_ms, due_ms)),
            last_status="success" if ended.succeeded else "error",
            next_run=UNSET if next_ms is None else to_iso(next_ms),
            run_count=job.runs + ended.counts,
        )

    return edit


def interrupt(job: Job) -> Job:
    """Record that nobody knows how the last fire ended; its due time stays in `last_run`."""
    return replace(job, last_status="error")


def date(due_ms: int) -> Edit:
    """Record when a job is due."""
    return lambda job: replace(job, next_run=to_iso(due_ms))

"""Compute when jobs are due: the next time of one job, and the next job of a session. Pure.

Due times are in milliseconds since the epoch; local time matters only for cron.
"""

from collections.abc import Collection, Iterable
from datetime import tzinfo
from typing import Final

from retinue.core.errors import UsageError
from retinue.features.schedule.job import Job
from retinue.features.schedule.parse import MIN_GAP_S, check_cron, find_next_cron
from retinue.features.schedule.zone import parse_iso, to_local, to_ms

_CORRECTED_MS: Final = 48 * 3_600_000
"""A last run further in the future than this came from a wrong clock and does not delay the next one."""


def find_due(job: Job, now_ms: int, zone: tzinfo) -> int | None:
    """Return when a job is due, maybe in the past; None if it is disabled. Raises UsageError for a bad schedule.

    A stored time in the past is kept, because that run was missed. A future time is computed again, because the clock
    or the zone may have changed.
    """
    if not job.enabled:
        return None
    if job.schedule_type == "once":
        due_ms = parse_iso(job.schedule)
        if due_ms is None:
            raise UsageError("cannot read the time; expected ISO such as 2030-01-31T09:00:00Z")
        return due_ms
    stored_ms = parse_iso(job.next_run)
    if stored_ms is not None and stored_ms <= now_ms:
        _check(job)
        return stored_ms
    fresh_ms = find_next(job, now_ms, zone)
    if job.schedule_type == "interval" and stored_ms is not None and fresh_ms is not None:
        return min(stored_ms, fresh_ms)
    return fresh_ms


def find_next(job: Job, now_ms: int, zone: tzinfo, *, due_ms: int | None = None) -> int | None:
    """Return the first due time after now; None if there is none. `due_ms` is the time that fires now."""
    _check(job)
    if job.schedule_type == "once":
        return None
    if job.schedule_type == "interval":
        assert job.interval_ms is not None
        if due_ms is None or due_ms > now_ms:
            return now_ms + job.interval_ms
        # Keep the rhythm and skip missed times.
        return due_ms + ((now_ms - due_ms) // job.interval_ms + 1) * job.interval_ms
    done_ms = max(parse_iso(job.last_run) or 0, due_ms or 0)
    # If the clock is set back, a time that has already fired does not fire again.
    start_ms = done_ms if now_ms < done_ms <= now_ms + _CORRECTED_MS else now_ms
    moment = find_next_cron(job.schedule, to_local(start_ms, zone))
    return None if moment is None else to_ms(moment)


def _check(job: Job) -> None:
    """Other programs write the file, too, so reject what parse_schedule would reject. Raises UsageError."""
    if job.schedule_type == "cron":
        check_cron(job.schedule)
    if job.schedule_type == "interval" and not MIN_GAP_S * 1000 <= (job.interval_ms or 0) <= 10**13:
        raise UsageError(f"intervalMs must be at least {MIN_GAP_S * 1000}")


class DueTimes:
    """Due times by job id, of enabled jobs only."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._due_ms: dict[str, int] = {}
        self._faults: dict[str, str] = {}

    def load(self, jobs: Iterable[Job], now_ms: int) -> dict[str, str]:
        """Replace all jobs; returns new faults by job id."""
        known = self._faults
        self._due_ms, self._faults = {}, {}
        for job in jobs:
            self.arm(job, now_ms)
        return {job_id: fault for job_id, fault in self._faults.items() if known.get(job_id) != fault}

    def arm(self, job: Job, now_ms: int) -> None:
        self._faults.pop(job.id, None)
        due_ms = None
        try:
            due_ms = find_due(job, now_ms, self._zone)
        except UsageError as error:
            self._faults[job.id] = f"The job does not run because its schedule is invalid: {error}."
        if due_ms is None:
            self._due_ms.pop(job.id, None)
        else:
            self._due_ms[job.id] = due_ms

    def forget(self, job_id: str) -> None:
        self._due_ms.pop(job_id, None)
        self._faults.pop(job_id, None)

    def find(self, job_id: str) -> int | None:
        return self._due_ms.get(job_id)

    def pick_due(self, now_ms: int, room: int, busy: Collection[str]) -> list[tuple[str, int]]:
        """Return up to `room` due jobs that are not busy, with their due times, longest waiting first."""
        if room <= 0:
            return []
        due = [(at_ms, job_id) for job_id, at_ms in self._due_ms.items() if at_ms <= now_ms and job_id not in busy]
        # The sort is stable: jobs with equal times keep their order.
        return [(job_id, at_ms) for at_ms, job_id in sorted(due, key=lambda item: item[0])[:room]]

    def find_next_ms(self, busy: Collection[str]) -> int | None:
        return min((at_ms for job_id, at_ms in self._due_ms.items() if job_id not in busy), default=None)

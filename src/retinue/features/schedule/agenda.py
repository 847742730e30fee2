"""The due times of a session's jobs in memory: who is due, and when the next one is.

Must not know files, runs or waiting.
"""

from collections.abc import Collection, Iterable
from datetime import tzinfo

from retinue.core.errors import UsageError
from retinue.features.schedule.due import find_due
from retinue.features.schedule.job import Job


class Agenda:
    """Due times by job id. A job that is not armed is not in it."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._due_ms: dict[str, int] = {}
        self._faults: dict[str, str] = {}

    def load(self, jobs: Iterable[Job], now_ms: int) -> dict[str, str]:
        """Arm these jobs and forget all others; gives back what is newly wrong with which."""
        known = self._faults
        self._due_ms, self._faults = {}, {}
        for job in jobs:
            self.arm(job, now_ms)
        return {job_id: fault for job_id, fault in self._faults.items() if known.get(job_id) != fault}

    def arm(self, job: Job, now_ms: int) -> None:
        """Work out when a job is due."""
        self._faults.pop(job.id, None)
        due_ms = None
        try:
            due_ms = find_due(job, now_ms, self._zone)
        except UsageError as error:
            self._faults[job.id] = f"Its schedule cannot be used: {error}."
        if due_ms is None:
            self._due_ms.pop(job.id, None)
        else:
            self._due_ms[job.id] = due_ms

    def forget(self, job_id: str) -> None:
        """Disarm a job."""
        self._due_ms.pop(job_id, None)
        self._faults.pop(job_id, None)

    def find(self, job_id: str) -> int | None:
        """When a job is due."""
        return self._due_ms.get(job_id)

    def pick_due(self, now_ms: int, room: int, busy: Collection[str]) -> list[tuple[str, int]]:
        """Up to `room` jobs that are due and not busy, with their due times, the one that has waited longest first."""
        if room <= 0:
            return []
        due = [(at_ms, job_id) for job_id, at_ms in self._due_ms.items() if at_ms <= now_ms and job_id not in busy]
        # Equal times keep the order in which the jobs were made.
        return [(job_id, at_ms) for at_ms, job_id in sorted(due, key=lambda item: item[0])[:room]]

    def find_next_ms(self, busy: Collection[str]) -> int | None:
        """The earliest due time of a job that is not busy."""
        return min((at_ms for job_id, at_ms in self._due_ms.items() if job_id not in busy), default=None)

"""Start scheduled agents when they are due: one timer for all jobs, each due time exactly once.

A due time is claimed on disk before its agent starts, and starting is idempotent: after a crash, a claimed time without
a run gets one, and an existing run is only awaited. Starting an agent and waiting for it are callables; must not know
the engine, surfaces or settings.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, UsageError
from retinue.core.run import Status
from retinue.features.schedule.due import DueTimes, find_next
from retinue.features.schedule.job import Job
from retinue.features.schedule.store import Edit, ScheduleStore, StoreError
from retinue.features.schedule.zone import LocalZone, parse_iso, to_iso


@dataclass(frozen=True, slots=True)
class Fire:
    """A claimed due time: its agent may be started once."""

    job: Job
    due_ms: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    fire: Fire
    succeeded: bool
    counts: bool
    """Whether a run has ended; False if none could be started."""


def claim(due_ms: int, now_ms: int, zone: tzinfo) -> Edit:
    """Return an edit that records a due time as running and sets the next one; a disabled job stays unchanged."""

    def edit(job: Job) -> Job:
        if not job.enabled:
            return job
        try:
            next_ms = find_next(job, now_ms, zone, due_ms=due_ms)
        except UsageError:
            return job  # became invalid by an edit, which arming it reports
        return replace(
            job,
            enabled=next_ms is not None,
            last_run=to_iso(due_ms),
            last_status="running",
            next_run=None if next_ms is None else to_iso(next_ms),
        )

    return edit


def settle(ended: Ended, now_ms: int, zone: tzinfo) -> Edit:
    """Return an edit that records how a run ended."""
    due_ms = ended.fire.due_ms

    def edit(job: Job) -> Job:
        # Skip times that passed during the run: a job never overlaps itself or catches up.
        try:
            next_ms = find_next(job, now_ms, zone, due_ms=due_ms) if job.enabled else None
        except UsageError:
            next_ms = None
        return replace(
            job,
            last_run=to_iso(max(now_ms, due_ms)),
            last_status="success" if ended.succeeded else "error",
            next_run=None if next_ms is None else to_iso(next_ms),
            run_count=job.runs + ended.counts,
        )

    return edit


def interrupt(job: Job) -> Job:
    """Record that the result of the last run is unknown; its due time stays in `last_run`."""
    return replace(job, last_status="error")


ChangeKind = Literal["added", "updated", "removed", "fired", "error"]

LOOK_S: Final = 30.0
"""Maximum sleep of the timer, so that a changed clock, zone or file is noticed."""

_LATE_MS: Final = 60_000
_SET_BACK_MS: Final = 1000
_LOCK_WAIT_S: Final = 0.05
"""How long the event loop may block for another process's lock; after that it is retried later."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """A change of a job, for front ends."""

    kind: ChangeKind
    job_id: str
    job: Job | None = None
    """The job after the change; for a removed job, before it."""
    run_id: str = ""
    error: str = ""
    note: str = ""
    """For a late run: when it was due."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the scheduler needs from other components. They may raise only RetinueError."""

    spawn: Callable[[Job], Awaitable[str]]
    """Start the agent of a job, bypassing the queue, and return the run id.

    If the due time (`last_run`) already has a run, of this or an earlier process, return that run's id.
    """
    settled: Callable[[str], Awaitable[Status]]
    """Wait until a run has ended."""
    announce: Callable[[JobChange], None]


class Scheduler:
    """Fires the jobs of one session. `run` is its main loop; other methods may be called before or during it."""

    def __init__(self, ports: Ports, *, clock: Clock, zone: tzinfo | None = None, max_concurrent: int = 4) -> None:
        self._ports = ports
        self._clock = clock
        self._zone = zone or LocalZone()
        self.max_concurrent = max_concurrent
        self._store: ScheduleStore | None = None
        """Kept when it is stopped, to record the runs in progress."""
        self._is_active = False
        self._agenda = DueTimes(self._zone)
        self._is_fresh = True
        """The jobs were not examined yet: runs left by a crash must still be handled."""
        self._revision = 0
        """The file's revision when jobs were last loaded."""
        self._live: set[str] = set()
        """Ids of jobs whose runs are not recorded as ended."""
        self._ended: list[Ended] = []
        self._revived: list[Fire] = []
        """Claims of an earlier process that must be executed again."""
        self._timer: asyncio.Task[None] | None = None
        self._is_stale = False
        self._is_held = False
        self._last_ms = 0
        self._last_zone: tuple[object, ...] = ()

    @property
    def store(self) -> ScheduleStore | None:
        """The jobs of the session; None if they are not active."""
        return self._store if self._is_active else None

    def start(self, store: ScheduleStore) -> int:
        """Activate the session's jobs; returns their number, including disabled ones."""
        self._store, self._agenda = store, DueTimes(self._zone)
        self._is_active = self._is_fresh = True
        self._wake()
        return len(store.jobs)

    def stop(self) -> None:
        """Fire nothing more; runs in progress continue and are recorded in the file."""
        self._is_active = False
        self._wake()

    def add(self, job: Job) -> None:
        """Add a job. Raises UsageError if there is no session or the name is taken."""
        self._require_store().add(job)
        self._agenda.arm(job, self._clock.now_ms())
        self._announce("added", job)
        self._wake()

    async def run(self) -> None:
        """Fire due jobs until cancelled. It awaits the runs, so cancel it after they were stopped."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._is_stale = False
                for fire in self._look():
                    group.create_task(self._carry_out(fire))
                await self._pause()

    def _require_store(self) -> ScheduleStore:
        if self.store is None:
            raise UsageError("Scheduler is not active in this session yet; try again when the session has started.")
        return self.store

    def _wake(self) -> None:
        self._is_stale = True
        if self._timer is not None:
            self._timer.cancel()

    async def _pause(self) -> None:
        """Sleep until the next due time, at most LOOK_S; ends early if something changed."""
        if self._is_stale:
            return
        # A separate task group, so that cancelling the sleep does not cancel the scheduler.
        try:
            async with asyncio.TaskGroup() as group:
                self._timer = group.create_task(self._clock.sleep(self._find_delay_s()))
        finally:
            self._timer = None

    def _find_delay_s(self) -> float:
        if not self._is_active or self._is_held or self._find_room() <= 0:
            return LOOK_S
        next_ms = self._agenda.find_next_ms(self._live)
        if next_ms is None:
            return LOOK_S
        return min(LOOK_S, max(0.0, (next_ms - self._clock.now_ms()) / 1000))

    def _look(self) -> list[Fire]:
        """Record ended runs and claim due jobs; if the file cannot be written, everything waits."""
        now_ms = self._clock.now_ms()
        was_held, self._is_held = self._is_held, False
        try:
            self._save_ended(now_ms)
            if (store := self.store) is None:
                return []
            self._follow(store, now_ms)
            claimed = self._claim(store, now_ms)
            revived, self._revived = self._revived, []
            return [*revived, *claimed]
        except StoreError as error:
            self._is_held = True
            if not was_held:
                self._announce("error", None, error=f"No job starts until this is fixed: {error}")
            return []

    def _follow(self, store: ScheduleStore, now_ms: int) -> None:
        """Reload all jobs if the file, the clock or the zone changed."""
        zone = self._zone.refresh() if isinstance(self._zone, LocalZone) else ()
        has_moved = now_ms < self._last_ms - _SET_BACK_MS or zone != self._last_zone
        self._last_ms, self._last_zone = now_ms, zone
        before = store.jobs
        store.reload()
        for job in before:
            if store.find(job.id) is None:
                self._announce("removed", job)
        is_new = self._is_fresh or store.revision != self._revision
        if not (is_new or has_moved):
            return
        if is_new:
            for problem in store.problems:
                self._announce("error", None, error=problem.message)
        if self._is_fresh:
            self._recover(store)
        for job_id, fault in self._agenda.load(store.jobs, now_ms).items():
            self._announce("error", store.find(job_id), error=fault)
        self._date_jobs(store)
        self._is_fresh, self._revision = False, store.revision

    def _recover(self, store: ScheduleStore) -> None:
        """Continue the runs that were recorded as running when the last process died."""
        strange = []
        for job in store.jobs:
            if job.last_status != "running" or job.id in self._live:
                continue
            due_ms = parse_iso(job.last_run)
            if due_ms is None:
                strange.append(job.id)
                continue
            self._live.add(job.id)
            self._revived.append(Fire(job, due_ms))
        for job in store.update(dict.fromkeys(strange, interrupt), wait_s=_LOCK_WAIT_S).values():
            self._announce("error", job, error="Its last run was interrupted, and its due time is unknown.")

    def _date_jobs(self, store: ScheduleStore) -> None:
        """Save due times that differ from the stored ones."""
        edits: dict[str, Edit] = {}
        for job in store.jobs:
            due_ms = self._agenda.find(job.id)
            if due_ms is not None and job.next_run != to_iso(due_ms):
                edits[job.id] = partial(replace, next_run=to_iso(due_ms))
        for job in store.update(edits, wait_s=_LOCK_WAIT_S).values():
            self._announce("updated", job)

    def _claim(self, store: ScheduleStore, now_ms: int) -> list[Fire]:
        """Claim as many due jobs as there is room for, in one write; only claimed jobs may start."""
        picked = dict(self._agenda.pick_due(now_ms, self._find_room(), self._live))
        edits = {job_id: claim(due_ms, now_ms, self._zone) for job_id, due_ms in picked.items()}
        claimed = store.update(edits, wait_s=_LOCK_WAIT_S)
        fires = []
        for job_id, due_ms in picked.items():
            job = claimed.get(job_id)
            if job is None:
                # Another process removed or disabled it meanwhile.
                self._agenda.forget(job_id)
                continue
            self._agenda.arm(job, now_ms)
            late = now_ms - due_ms > _LATE_MS
            note = f"It was due at {to_iso(due_ms)} and could not start earlier." if late else ""
            self._live.add(job.id)
            fires.append(Fire(job, due_ms, note))
        return fires

    async def _carry_out(self, fire: Fire) -> None:
        self._announce("updated", fire.job)
        try:
            run_id = await self._ports.spawn(fire.job)
        except RetinueError as error:
            self._end(Ended(fire, succeeded=False, counts=False), str(error))
            return
        self._announce("fired", fire.job, run_id=run_id, note=fire.note)
        try:
            status = await self._ports.settled(run_id)
        except RetinueError as error:
            self._end(Ended(fire, succeeded=False, counts=True), str(error))
            return
        is_lost = status is Status.INTERRUPTED
        error_text = f"Its run of {to_iso(fire.due_ms)} was interrupted and is not repeated." if is_lost else ""
        self._end(Ended(fire, succeeded=status is Status.COMPLETED, counts=True), error_text)

    def _end(self, ended: Ended, error: str) -> None:
        self._ended.append(ended)
        if error:
            self._announce("error", ended.fire.job, error=error)
        self._wake()

    def _save_ended(self, now_ms: int) -> None:
        """Record how runs ended, in one write; a job may fire again only after that."""
        if self._store is None or not self._ended:
            return
        edits = {ended.fire.job.id: settle(ended, now_ms, self._zone) for ended in self._ended}
        saved: dict[str, Job] = {}
        try:
            saved = self._store.update(edits, wait_s=_LOCK_WAIT_S)
        except StoreError as error:
            if self._is_active:
                raise
            # The next start recovers this as after a crash.
            self._announce("error", None, error=str(error))
        self._ended.clear()
        self._live -= edits.keys()
        for job in saved.values():
            if self._is_active:
                self._agenda.arm(job, now_ms)
            self._announce("updated", job)

    def _find_room(self) -> int:
        return self.max_concurrent - len(self._live)

    def _announce(self, kind: ChangeKind, job: Job | None, **more: str) -> None:
        self._ports.announce(JobChange(kind, "" if job is None else job.id, job, **more))

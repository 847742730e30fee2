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

    store: ScheduleStore
    job: Job
    due_ms: int
    note: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the job across sessions."""
        return str(self.store.path), self.job.id


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


@dataclass(slots=True)
class _Scope:
    """The session whose jobs are active."""

    store: ScheduleStore
    agenda: DueTimes
    is_fresh: bool = True
    """Not examined yet: runs left by a crash must still be handled."""
    revision: int = 0
    """The file's revision when jobs were last loaded."""


class Scheduler:
    """Fires the jobs of one session. `run` is its main loop; other methods may be called before or during it."""

    def __init__(self, ports: Ports, *, clock: Clock, zone: tzinfo | None = None, max_concurrent: int = 4) -> None:
        self._ports = ports
        self._clock = clock
        self._zone = zone or LocalZone()
        self.max_concurrent = max_concurrent
        self._scope: _Scope | None = None
        self._live: dict[tuple[str, str], Fire] = {}
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
        """The jobs of the active session; None if there is none."""
        return None if self._scope is None else self._scope.store

    def start(self, store: ScheduleStore) -> int:
        """Activate a session's jobs, replacing another session's; returns the number of jobs, also disabled ones."""
        self._scope = _Scope(store, DueTimes(self._zone))
        self._wake()
        return len(store.jobs)

    def stop(self) -> None:
        """Fire nothing more; runs in progress continue and are recorded in their session's file."""
        self._scope = None
        self._wake()

    def add(self, job: Job) -> None:
        """Add a job. Raises UsageError if there is no session or the name is taken."""
        scope = self._require_scope()
        scope.store.add(job)
        scope.agenda.arm(job, self._clock.now_ms())
        self._announce("added", job)
        self._wake()

    def cancel(self, job_id: str) -> bool:
        """Remove a job; its current run continues. False if there is no such job."""
        scope = self._require_scope()
        job = scope.store.remove(job_id)
        scope.agenda.forget(job_id)
        if job is not None:
            self._announce("removed", job)
            self._wake()
        return job is not None

    async def run(self) -> None:
        """Fire due jobs until cancelled. It awaits the runs, so cancel it after they were stopped."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._is_stale = False
                for fire in self._look():
                    group.create_task(self._carry_out(fire))
                await self._pause()

    def _require_scope(self) -> _Scope:
        if self._scope is None:
            raise UsageError("Scheduler is not active in this session yet; try again when the session has started.")
        return self._scope

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
        scope = self._scope
        if scope is None or self._is_held or self._find_room() <= 0:
            return LOOK_S
        next_ms = scope.agenda.find_next_ms(self._find_busy(scope))
        if next_ms is None:
            return LOOK_S
        return min(LOOK_S, max(0.0, (next_ms - self._clock.now_ms()) / 1000))

    def _look(self) -> list[Fire]:
        """Record ended runs and claim due jobs; if the file cannot be written, everything waits."""
        now_ms = self._clock.now_ms()
        was_held, self._is_held = self._is_held, False
        try:
            self._save_ended(now_ms)
            scope = self._scope
            if scope is None:
                return []
            self._follow(scope, now_ms)
            claimed = self._claim(scope, now_ms)
            revived, self._revived = self._revived, []
            return [*revived, *claimed]
        except StoreError as error:
            self._is_held = True
            if not was_held:
                self._announce("error", None, error=f"No job starts until this is fixed: {error}")
            return []

    def _follow(self, scope: _Scope, now_ms: int) -> None:
        """Reload all jobs if the file, the clock or the zone changed."""
        store = scope.store
        zone = self._zone.refresh() if isinstance(self._zone, LocalZone) else ()
        has_moved = now_ms < self._last_ms - _SET_BACK_MS or zone != self._last_zone
        self._last_ms, self._last_zone = now_ms, zone
        store.reload()
        is_new = scope.is_fresh or store.revision != scope.revision
        if not (is_new or has_moved):
            return
        if is_new:
            for problem in store.problems:
                self._announce("error", None, error=problem.message)
        if scope.is_fresh:
            self._recover(scope)
        for job_id, fault in scope.agenda.load(store.jobs, now_ms).items():
            self._announce("error", store.find(job_id), error=fault)
        self._date_jobs(scope)
        scope.is_fresh, scope.revision = False, store.revision

    def _recover(self, scope: _Scope) -> None:
        """Continue the runs that were recorded as running when the last process died."""
        busy, strange = self._find_busy(scope), []
        for job in scope.store.jobs:
            if job.last_status != "running" or job.id in busy:
                continue
            due_ms = parse_iso(job.last_run)
            if due_ms is None:
                strange.append(job.id)
                continue
            fire = Fire(scope.store, job, due_ms)
            self._live[fire.key] = fire
            self._revived.append(fire)
        for job in scope.store.update(dict.fromkeys(strange, interrupt), wait_s=_LOCK_WAIT_S).values():
            self._announce("error", job, error="Its last run was interrupted, and its due time is unknown.")

    def _date_jobs(self, scope: _Scope) -> None:
        """Save due times that differ from the stored ones."""
        edits: dict[str, Edit] = {}
        for job in scope.store.jobs:
            due_ms = scope.agenda.find(job.id)
            if due_ms is not None and job.next_run != to_iso(due_ms):
                edits[job.id] = partial(replace, next_run=to_iso(due_ms))
        for job in scope.store.update(edits, wait_s=_LOCK_WAIT_S).values():
            self._announce("updated", job)

    def _claim(self, scope: _Scope, now_ms: int) -> list[Fire]:
        """Claim as many due jobs as there is room for, in one write; only claimed jobs may start."""
        picked = dict(scope.agenda.pick_due(now_ms, self._find_room(), self._find_busy(scope)))
        edits = {job_id: claim(due_ms, now_ms, self._zone) for job_id, due_ms in picked.items()}
        claimed = scope.store.update(edits, wait_s=_LOCK_WAIT_S)
        fires = []
        for job_id, due_ms in picked.items():
            job = claimed.get(job_id)
            if job is None:
                # Another process removed or disabled it meanwhile.
                scope.agenda.forget(job_id)
                continue
            scope.agenda.arm(job, now_ms)
            late = now_ms - due_ms > _LATE_MS
            note = f"It was due at {to_iso(due_ms)} and could not start earlier." if late else ""
            fire = Fire(scope.store, job, due_ms, note)
            self._live[fire.key] = fire
            fires.append(fire)
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
        """Record how runs ended, with one write per file; a job may fire again only after that."""
        for store in {id(ended.fire.store): ended.fire.store for ended in self._ended}.values():
            mine = [ended for ended in self._ended if ended.fire.store is store]
            edits = {ended.fire.job.id: settle(ended, now_ms, self._zone) for ended in mine}
            try:
                saved = store.update(edits, wait_s=_LOCK_WAIT_S)
            except StoreError as error:
                if store is self.store:
                    raise
                # For a session that is no longer active, the next start recovers this as after a crash.
                saved = {}
                self._announce("error", None, error=str(error))
            self._ended = [ended for ended in self._ended if ended.fire.store is not store]
            for ended in mine:
                del self._live[ended.fire.key]
            for job in saved.values():
                if self._scope is not None and self._scope.store.path == store.path:
                    self._scope.agenda.arm(job, now_ms)
                self._announce("updated", job)

    def _find_room(self) -> int:
        return self.max_concurrent - len(self._live)

    def _find_busy(self, scope: _Scope) -> set[str]:
        path = str(scope.store.path)
        return {job_id for store_path, job_id in self._live if store_path == path}

    def _announce(self, kind: ChangeKind, job: Job | None, **more: str) -> None:
        self._ports.announce(JobChange(kind, "" if job is None else job.id, job, **more))

"""The schedules of one main session: loaded if there are any, and active only if they are the user's own.

A job file may have come with a clone of the project. Unless the project is trusted, its jobs fire only if a process of
this user has written the file before, which is recorded in the agent directory, where clones cannot write.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import Event, ScheduleChanged, SchedulerReady, Warned
from retinue.sessions.files import make_private
from retinue.settings.config import Config
from retinue.surfaces.fleet.ports import FleetPorts, ScheduledCall

if TYPE_CHECKING:  # most sessions have no schedules
    from retinue.features.schedule.scheduler import JobChange, Scheduler

SOURCE = "scheduler"
"""Run id of its events, which belong to no run."""


class Schedules:
    """Accepts scheduled calls and runs them while the session is open."""

    def __init__(
        self, config: Config, session_id: str, ports: FleetPorts, clock: Clock, publish: Callable[[Event], None]
    ) -> None:
        """`ports` are those of the main agent."""
        project = config.paths.project
        self._config = config
        self._session_id = session_id
        self._ports = ports
        self._clock = clock
        self._publish = publish
        self._path = project / ".pi" / "subagent-schedules" / f"{session_id}.json"
        digest = hashlib.sha256(str(self._path).encode(errors="surrogateescape")).hexdigest()[:32]
        self._mark = config.paths.own_dir / "schedules" / digest
        self._scheduler: Scheduler | None = None
        self._is_wanted = asyncio.Event()

    async def run(self) -> None:
        """Start due jobs until cancelled."""
        self._arm()
        await self._is_wanted.wait()
        if self._scheduler is not None:
            await self._scheduler.run()

    def apply_settings(self) -> None:
        """Apply the current settings: if disabled, no job fires any more, but running ones continue."""
        settings, scheduler = self._config.crew.settings, self._scheduler
        if scheduler is not None:
            scheduler.max_concurrent = settings.max_concurrent_scheduled
            if not settings.scheduling_enabled:
                scheduler.stop()
        if scheduler is None or scheduler.store is None:
            self._arm()

    def take(self, text: str, members: Mapping[str, Any]) -> ScheduledCall:
        """Schedule a call. Raises RetinueError if it is invalid or cannot be stored."""
        from retinue.surfaces.fleet.schedules import schedule_call

        if self._path.exists() and not self._is_own:
            raise UsageError(f"{self._path} came with this project, which is not trusted; see retinue trust")
        scheduler = self._need_scheduler()
        try:
            make_private(self._mark.parent)
            self._mark.touch(mode=0o600)
        except OSError as error:
            raise UsageError(f"{self._mark}: cannot be written: {error.strerror}") from error
        return schedule_call(scheduler, self._clock.now_ms(), text, members)

    @property
    def _is_own(self) -> bool:
        trust = self._config.loaded.trust
        return trust.trusted or self._mark.exists()

    def _need_scheduler(self) -> "Scheduler":
        if self._scheduler is None:
            from retinue.features.schedule.scheduler import Scheduler
            from retinue.surfaces.fleet.schedules import open_scheduler_ports

            self._scheduler = Scheduler(
                open_scheduler_ports(self._ports, self._announce),
                clock=self._clock,
                max_concurrent=self._config.crew.settings.max_concurrent_scheduled,
            )
        if self._scheduler.store is None:
            from retinue.features.schedule.store import ScheduleStore

            count = self._scheduler.start(ScheduleStore(self._config.paths.project, self._session_id))
            self._publish(SchedulerReady(run_id=SOURCE, session_id=self._session_id, job_count=count))
            self._is_wanted.set()
        return self._scheduler

    def _arm(self) -> None:
        """Load the jobs of the file, if there is one and it is the user's."""
        if not self._config.crew.settings.scheduling_enabled or not self._path.exists():
            return
        if not self._is_own:
            self._warn(f"{self._path}: its schedules came with a project that is not trusted; they do not fire")
            return
        try:
            self._need_scheduler()
        except RetinueError as error:
            self._warn(f"nothing is scheduled: {error}")

    def _announce(self, change: "JobChange") -> None:
        from retinue.features.schedule.job import to_entry

        job = change.job
        self._publish(
            ScheduleChanged(
                run_id=SOURCE,
                change=change.kind,
                job_id=change.job_id,
                job=None if job is None else to_entry(job),
                agent_id=change.run_id,
                error=change.error,
                note=change.note,
            )
        )
        name = "" if job is None else f'scheduled "{job.name}": '
        if text := change.error or change.note:
            self._warn(f"{name}{text}")

    def _warn(self, text: str) -> None:
        self._publish(Warned(run_id=SOURCE, text=text))

"""A scheduler with its clock, its session's file and agents that end when a test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.run import Status
from retinue.features.schedule.job import Job, create_job
from retinue.features.schedule.parse import parse_schedule
from retinue.features.schedule.scheduler import JobChange, Ports, Scheduler
from retinue.features.schedule.store import ScheduleStore
from retinue.features.schedule.zone import to_iso, to_local, to_ms
from retinue.testing.clock import FakeClock

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86_400


class WallClock(FakeClock):
    """A clock whose time of day can be set without time passing: a correction, or a suspended machine."""

    set_by_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.set_by_s * 1000)


class World:
    """One process's life with schedules; a second World on the same folder is the next process."""

    def __init__(
        self, folder: Path, *, now: datetime = NOON, zone: tzinfo = UTC, limit: int = 4, session_id: str = "s1"
    ) -> None:
        self.clock = WallClock(now_ms=to_ms(now))
        self.zone = zone
        self.store = ScheduleStore(folder, session_id)
        self.changes: list[JobChange] = []
        self.spawned: list[tuple[str, str]] = []
        """Name and time of day of every start."""
        self.ends: dict[str, asyncio.Future[Status]] = {}
        self.known: dict[str, Status] = {}
        """Runs that an earlier process has started, by name and due time, and what became of them."""
        self.most_live = 0
        self.refuse: Callable[[Job], str] = lambda job: ""
        self.scheduler = Scheduler(
            Ports(self.spawn, self.settled, self.changes.append), clock=self.clock, zone=zone, max_concurrent=limit
        )

    async def spawn(self, job: Job) -> str:
        if problem := self.refuse(job):
            raise RetinueError(problem)
        if (occasion := f"{job.name} {job.last_run}") in self.known:
            self.ends[occasion] = asyncio.get_running_loop().create_future()
            self.ends[occasion].set_result(self.known[occasion])
            return occasion
        self.spawned.append((job.name, self.time))
        run_id = f"r{len(self.spawned)}"
        self.ends[run_id] = asyncio.get_running_loop().create_future()
        self.most_live = max(self.most_live, sum(not end.done() for end in self.ends.values()))
        return run_id

    async def settled(self, run_id: str) -> Status:
        return await self.ends[run_id]

    @property
    def time(self) -> str:
        return to_iso(self.clock.now_ms())[:19]

    def make(self, text: str, name: str = "", **options: Any) -> Job:
        """A job as the caller of the feature makes it."""
        now_ms = self.clock.now_ms()
        schedule = parse_schedule(text, to_local(now_ms, self.zone))
        return create_job(
            schedule, name=name or text, subagent_type="Explore", prompt="look", now_ms=now_ms, job_id=name, **options
        )

    async def end(self, run_id: str, status: Status = Status.COMPLETED) -> None:
        self.ends[run_id].set_result(status)
        await self.clock.advance(0)

    async def end_all(self) -> None:
        for end in self.ends.values():
            if not end.done():
                end.set_result(Status.COMPLETED)
        await self.clock.advance(0)

    def kinds(self) -> list[str]:
        """What was announced so far, and forget it."""
        kinds = [change.kind for change in self.changes]
        self.changes.clear()
        return kinds

    @asynccontextmanager
    async def running(self, *, started: bool = True) -> AsyncIterator["World"]:
        if started:
            self.scheduler.start(self.store)
        async with asyncio.TaskGroup() as group:
            life = group.create_task(self.scheduler.run())
            await self.clock.advance(0)
            yield self
            life.cancel()

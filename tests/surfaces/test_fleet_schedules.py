import asyncio
from datetime import UTC

import pytest
from msgspec.structs import replace

from retinue.core.run import Status
from retinue.features.schedule.scheduler import Scheduler
from retinue.features.schedule.store import ScheduleStore
from retinue.surfaces.fleet.schedules import open_scheduler_ports, schedule_call
from tests.surfaces.fleet_world import EXPLORE, GENERAL, HAIKU, Fleet


class Clockwork:
    """A fleet with a scheduler at work."""

    def __init__(self, folder, **options):
        self.changes = []
        slow = {"Explore": [{"text": "x", "delay_ms": 10_000_000}]}
        self.fleet = Fleet(folder, slow, ports={"schedule": self.take}, **options)
        ports = open_scheduler_ports(self.fleet.ports, self.changes.append)
        self.scheduler = Scheduler(ports, clock=self.fleet.clock, zone=UTC)
        self.scheduler.start(ScheduleStore(folder, "s1"))

    def take(self, text, **members):
        return schedule_call(self.scheduler, self.fleet.clock.now_ms(), text, members, UTC)

    async def __aenter__(self):
        await self.fleet.__aenter__()
        self.task = asyncio.create_task(self.scheduler.run())
        return self

    async def __aexit__(self, *error):
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.fleet.__aexit__(*error)


@pytest.mark.spec("fleet:B79", "fleet:B81", "fleet:B83")
async def test_scheduled_call_starts_past_the_queue(tmp_path):
    async with Clockwork(tmp_path, max_concurrent=1) as works:
        fleet = works.fleet
        await fleet.start("Explore")
        text = await fleet.call("Agent", prompt="p", description="nightly", schedule="+10m", model="haiku")
        assert text.startswith('Scheduled "nightly" (id: ')
        assert ", type: once). Next run: 2023-11-14T22:23:20.000Z. Manage via /agents → Scheduled jobs." in text
        await fleet.clock.advance(601)
        request, run = fleet.requests[-1], fleet.manager.list_runs()[0]
        assert (request.task, request.model, run.description, run.status) == (
            "p",
            HAIKU.ref,
            "nightly",
            Status.COMPLETED,
        )
        kinds = [change.kind for change in works.changes if change.kind != "updated"]
        assert (kinds, (tmp_path / ".pi/subagent-schedules/s1.json").is_file()) == (["added", "fired"], True)


@pytest.mark.spec("fleet:B79", "fleet:B82")
async def test_bad_schedules_are_refused(tmp_path):
    async with Clockwork(tmp_path) as works:
        fleet = works.fleet
        assert "Use 6-field cron" in await fleet.call("Agent", prompt="p", description="d", schedule="10")
        await fleet.call("Agent", prompt="p", description="d", schedule="5m")
        text = await fleet.call("Agent", prompt="p", description="d", schedule="5m")
        assert text == 'A scheduled job named "d" already exists.'
        assert len(works.scheduler.store.jobs) == 1


async def test_job_of_a_vanished_agent_fails(tmp_path):
    async with Clockwork(tmp_path) as works:
        fleet = works.fleet
        await fleet.call("Agent", prompt="p", description="d", schedule="+1m", subagent_type="Explore")
        fleet.definitions[:] = [GENERAL, replace(EXPLORE, enabled=False)]
        await fleet.clock.advance(61)
        errors = [change.error for change in works.changes if change.kind == "error"]
        assert (errors, fleet.manager.list_runs()) == (
            ['Agent type "Explore" is disabled. Available types: general-purpose.'],
            [],
        )

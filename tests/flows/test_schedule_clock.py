import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from retinue.features.schedule.zone import LocalZone
from tests.flows.schedule_world import DAY, HOUR, MINUTE, World

NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize("jump_s", [DAY, 8 * HOUR])
async def test_forward_jump_fires_once(tmp_path: Path, jump_s: int) -> None:
    world = World(tmp_path)
    async with world.running():
        for text in ("5m", "0 */5 * * * *", "+1h"):
            world.scheduler.add(world.make(text, text.replace(" ", "")))
        world.clock.set_by_s = jump_s
        await world.clock.advance(30)
        assert sorted(name for name, _ in world.spawned) == ["+1h", "0*/5****", "5m"]
        notes = {change.note for change in world.changes if change.kind == "fired"}
        await world.end_all()
        await world.clock.advance(4 * MINUTE)
        assert len(world.spawned) == 3
        await world.clock.advance(MINUTE)
    assert len(world.spawned) == 5
    assert notes == {
        "It was due at 2026-06-01T12:05:00.000Z and could not start earlier.",
        "It was due at 2026-06-01T13:00:00.000Z and could not start earlier.",
    }


async def test_backward_jump_delays_no_interval(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        world.scheduler.add(world.make("5m", "a"))
        world.clock.set_by_s = -DAY
        await world.clock.advance(5 * MINUTE + 30)
    assert [name for name, _ in world.spawned] == ["a"]


async def test_backward_jump_repeats_no_fire(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        world.scheduler.add(world.make("0 30 12 * * *", "daily"))
        await world.clock.advance(HOUR)
        await world.end("r1")
        world.clock.set_by_s = -DAY
        await world.clock.advance(MINUTE)
        world.clock.set_by_s = -2 * HOUR
        await world.clock.advance(3 * HOUR)
        assert len(world.spawned) == 1
        world.clock.set_by_s += 20 * HOUR
        await world.clock.advance(3 * HOUR)
    assert world.spawned[1:] == [("daily", "2026-06-02T12:30:00")]


@pytest.mark.parametrize(
    ("start", "text", "fired"),
    [
        (datetime(2026, 3, 8, 0, tzinfo=NEW_YORK), "0 30 2 * * *", "2026-03-08T07:00:00"),
        (datetime(2026, 10, 31, 22, tzinfo=NEW_YORK), "0 30 1 * * *", "2026-11-01T05:30:00"),
    ],
)
async def test_changed_hour_fires_once(tmp_path: Path, start: datetime, text: str, fired: str) -> None:
    world = World(tmp_path, now=start, zone=NEW_YORK)
    async with world.running():
        world.scheduler.add(world.make(text, "a"))
        for _ in range(12):
            await world.clock.advance(HOUR)
            await world.end_all()
    assert world.spawned == [("a", fired)]


async def test_missed_fires_are_caught_up_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        for text in ("5m", "0 0 * * * *", "+2h"):
            world.scheduler.add(world.make(text, text.replace(" ", "")))
    later = World(tmp_path, now=datetime(2026, 6, 3, 9, 7, 30, tzinfo=UTC))
    async with later.running():
        first = list(later.spawned)
        await later.end_all()
        assert [job.next_run for job in later.store.jobs if job.enabled] == [
            "2026-06-03T09:10:00.000Z",
            "2026-06-03T10:00:00.000Z",
        ]
        await later.clock.advance(2 * MINUTE)
    assert first == [(name, "2026-06-03T09:07:30") for name in ("5m", "00****", "+2h")]
    assert later.spawned == first


async def test_wall_time_is_looked_at(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        world.scheduler.add(world.make("30d", "a"))
        await world.clock.advance(10 * MINUTE)
    assert max(world.clock.slept) == 30


async def test_changed_zone_moves_cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    world = World(tmp_path, zone=LocalZone())
    try:
        async with world.running():
            world.scheduler.add(world.make("0 0 14 * * *", "a"))
            monkeypatch.setenv("TZ", "Europe/Athens")
            await world.clock.advance(2 * HOUR)
            moved = world.store.jobs[0].next_run
            world.clock.set_by_s = 21 * HOUR
            await world.clock.advance(MINUTE)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (moved, world.spawned) == ("2026-06-02T11:00:00.000Z", [("a", "2026-06-02T11:00:30")])

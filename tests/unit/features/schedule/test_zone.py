import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from retinue.features.schedule.parse import find_next_cron
from retinue.features.schedule.zone import LocalZone, name_zone, parse_iso, to_iso, to_local, to_ms

HOUR = timedelta(hours=1)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalZone]:
    monkeypatch.setenv("TZ", "America/New_York")
    zone = LocalZone()
    zone.refresh()
    yield zone
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("start", [datetime(2026, 3, 8, 4, tzinfo=UTC), datetime(2026, 11, 1, 3, tzinfo=UTC)])
def test_local_zone_knows_changes(zone: LocalZone, start: datetime) -> None:
    moments = [start + HOUR * step / 4 for step in range(24)]
    expected = [moment.astimezone(ZoneInfo("America/New_York")) for moment in moments]
    local = [moment.astimezone(zone) for moment in moments]
    assert [(m.isoformat(), m.fold, m.tzname()) for m in local] == [
        (m.isoformat(), m.fold, m.tzname()) for m in expected
    ]
    assert [m.astimezone(UTC) for m in local] == moments


def test_local_zone_serves_cron(zone: LocalZone) -> None:
    start = datetime(2026, 3, 7, 12, tzinfo=zone)
    due = find_next_cron("0 30 2 * * *", start)
    assert due is not None and due.isoformat() == "2026-03-08T03:00:00-04:00"


def test_changed_zone_is_noticed(zone: LocalZone, monkeypatch: pytest.MonkeyPatch) -> None:
    before = zone.refresh()
    assert zone.refresh() == before
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert zone.refresh() != before
    assert name_zone(to_local(0, zone)) == "JST, UTC+09:00"


def test_instants_survive_iso() -> None:
    instants = [0, 1, 1_700_000_000_123, to_ms(datetime(9999, 12, 31, tzinfo=UTC))]
    assert [parse_iso(to_iso(instant)) for instant in instants] == instants
    assert to_iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize("text", [None, "", "soon", "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:00"])
def test_unreadable_instant_is_none(text: str | None) -> None:
    assert parse_iso(text) is None

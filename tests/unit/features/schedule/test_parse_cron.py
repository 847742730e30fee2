from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from retinue.features.schedule.parse import find_next_cron
from retinue.features.schedule.zone import to_ms

NEW_YORK = ZoneInfo("America/New_York")
SPRING = datetime(2026, 3, 7, 12, tzinfo=NEW_YORK)
AUTUMN = datetime(2026, 10, 31, 12, tzinfo=NEW_YORK)


def list_fires(text: str, start: datetime, end: datetime) -> list[str]:
    fires, moment = [], find_next_cron(text, start)
    while moment is not None and to_ms(moment) < to_ms(end):
        fires.append(moment.isoformat())
        moment = find_next_cron(text, moment)
    return fires


def test_skipped_hour_fires_once() -> None:
    end = datetime(2026, 3, 9, tzinfo=NEW_YORK)
    assert list_fires("0 30 2 * * *", SPRING, end) == ["2026-03-08T03:00:00-04:00"]
    assert list_fires("0 */10 2 * * *", SPRING, end) == ["2026-03-08T03:00:00-04:00"]
    assert list_fires("0 0 2,3 * * *", SPRING, end) == ["2026-03-08T03:00:00-04:00"]


def test_repeated_hour_fires_once() -> None:
    end = datetime(2026, 11, 2, tzinfo=NEW_YORK)
    assert list_fires("0 30 1 * * *", AUTUMN, end) == ["2026-11-01T01:30:00-04:00"]
    second_pass = datetime(2026, 11, 1, 1, 10, fold=1, tzinfo=NEW_YORK)
    assert list_fires("0 30 1 * * *", second_pass, end) == []


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_hourly_follows_elapsed_hours(start: datetime) -> None:
    moments = [find_next_cron("0 30 * * * *", start)]
    while len(moments) < 30:
        assert moments[-1] is not None
        moments.append(find_next_cron("0 30 * * * *", moments[-1]))
    assert {to_ms(b) - to_ms(a) for a, b in pairwise(filter(None, moments))} == {3_600_000}


def test_skipped_day_fires_after() -> None:
    apia = ZoneInfo("Pacific/Apia")
    start, end = datetime(2011, 12, 29, 12, tzinfo=apia), datetime(2012, 1, 1, tzinfo=apia)
    assert list_fires("0 0 9 * * *", start, end) == ["2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"]


def test_leap_day_is_found() -> None:
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)
    assert list_fires("0 0 0 29 2 *", start, end) == ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]


def test_either_day_field_matches() -> None:
    start, end = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 6, 16, tzinfo=UTC)
    assert [fire[:10] for fire in list_fires("0 0 9 10 * MON", start, end)] == [
        "2026-06-01",
        "2026-06-08",
        "2026-06-10",
        "2026-06-15",
    ]


@pytest.mark.parametrize("text", ["0 0 0 31 2 *", "nonsense", "0 0 99 * * *"])
def test_no_fire_is_none(text: str) -> None:
    assert find_next_cron(text, SPRING) is None


def test_calendar_end_is_none() -> None:
    assert find_next_cron("0 0 0 1 1 *", datetime(9999, 6, 1, tzinfo=NEW_YORK)) is None

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from retinue.core.errors import UsageError
from retinue.features.schedule.due import find_due, find_next
from retinue.features.schedule.job import Job
from retinue.features.schedule.zone import to_iso, to_ms

NOW_MS = to_ms(datetime(2026, 6, 1, 12, tzinfo=UTC))
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def make_job(kind: str, schedule: str = "", *, next_ms: int | None = None, **more: Any) -> Job:
    if next_ms is not None:
        more["next_run"] = to_iso(next_ms)
    base: dict[str, Any] = {"enabled": True, "schedule": schedule, "schedule_type": kind, **more}
    return Job(id="j", name="n", subagent_type="t", prompt="p", **base)


def make_interval(next_ms: int | None = None, **more: Any) -> Job:
    return make_job("interval", "5m", next_ms=next_ms, interval_ms=5 * MINUTE_MS, **more)


def make_daily(next_ms: int | None = None, **more: Any) -> Job:
    return make_job("cron", "0 0 9 * * *", next_ms=next_ms, **more)


@pytest.mark.parametrize("job", [make_interval(NOW_MS - DAY_MS), make_daily(NOW_MS - DAY_MS)])
def test_passed_time_stands(job: Job) -> None:
    assert find_due(job, NOW_MS, UTC) == NOW_MS - DAY_MS


def test_missed_beats_are_left_out() -> None:
    due_ms = NOW_MS - DAY_MS - MINUTE_MS
    assert find_next(make_interval(), NOW_MS, UTC, due_ms=due_ms) == NOW_MS + 4 * MINUTE_MS
    assert find_next(make_interval(), NOW_MS, UTC, due_ms=NOW_MS) == NOW_MS + 5 * MINUTE_MS


def test_interval_ignores_clock_set_back() -> None:
    assert find_due(make_interval(NOW_MS + DAY_MS), NOW_MS, UTC) == NOW_MS + 5 * MINUTE_MS
    assert find_due(make_interval(NOW_MS + MINUTE_MS), NOW_MS, UTC) == NOW_MS + MINUTE_MS
    assert find_due(make_interval(), NOW_MS, UTC) == NOW_MS + 5 * MINUTE_MS


def test_due_time_runs_once_when_set_back() -> None:
    ran_ms = to_ms(datetime(2026, 6, 2, 9, tzinfo=UTC))
    job = make_daily(ran_ms + DAY_MS, last_run=to_iso(ran_ms))
    assert find_due(job, NOW_MS, UTC) == ran_ms + DAY_MS


def test_wrong_clock_does_not_block() -> None:
    job = make_daily(NOW_MS + 400 * DAY_MS, last_run=to_iso(NOW_MS + 399 * DAY_MS))
    assert find_due(job, NOW_MS, UTC) == to_ms(datetime(2026, 6, 2, 9, tzinfo=UTC))


def test_new_zone_moves_cron() -> None:
    job = make_daily(to_ms(datetime(2026, 6, 2, 9, tzinfo=UTC)))
    tokyo = ZoneInfo("Asia/Tokyo")
    assert find_due(job, NOW_MS, tokyo) == to_ms(datetime(2026, 6, 2, 9, tzinfo=tokyo))


def test_single_time_is_fixed() -> None:
    job = make_job("once", to_iso(NOW_MS - DAY_MS), next_ms=NOW_MS + DAY_MS)
    assert find_due(job, NOW_MS, UTC) == NOW_MS - DAY_MS
    assert find_next(job, NOW_MS, UTC, due_ms=NOW_MS - DAY_MS) is None


@pytest.mark.parametrize("enabled", [False, None])
def test_disabled_job_is_unarmed(enabled: bool | None) -> None:
    more = {} if enabled is None else {"enabled": enabled}
    job = Job(id="j", name="n", subagent_type="t", prompt="p", schedule="x", schedule_type="once", **more)
    assert find_due(job, NOW_MS, UTC) is None


@pytest.mark.parametrize(
    "job",
    [
        make_job("once", "soon"),
        make_job("interval", "5m"),
        make_job("interval", "1s", interval_ms=1000),
        make_job("interval", "1s", interval_ms=1000, next_ms=NOW_MS - 1),
        make_job("cron", "* * * * * *"),
        make_job("cron", "0 0 31 2 *", next_ms=NOW_MS - 1),
    ],
)
def test_unusable_schedule_is_refused(job: Job) -> None:
    with pytest.raises(UsageError):
        find_due(job, NOW_MS, UTC)

from datetime import UTC, datetime

import pytest

from retinue.core.errors import ConfigError
from retinue.features.schedule.job import create_job, make_job_id, parse_job, to_entry
from retinue.features.schedule.parse import parse_schedule
from retinue.features.schedule.zone import to_ms

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FULL = {
    "id": "abcdefghij",
    "name": "nightly",
    "description": "nightly",
    "schedule": "5m",
    "scheduleType": "interval",
    "intervalMs": 300_000,
    "subagent_type": "Explore",
    "prompt": "look",
    "model": "haiku",
    "thinking": "low",
    "max_turns": 3,
    "isolated": True,
    "isolation": "worktree",
    "enabled": True,
    "createdAt": "2026-06-01T12:00:00.000Z",
    "lastRun": "2026-06-01T12:05:00.000Z",
    "lastStatus": "success",
    "nextRun": "2026-06-01T12:10:00.000Z",
    "runCount": 1,
}


def test_new_job_is_complete() -> None:
    schedule = parse_schedule("+5m", NOW)
    job = create_job(
        schedule,
        name="nightly",
        subagent_type="Explore",
        prompt="look",
        now_ms=to_ms(NOW),
        job_id="abcdefghij",
        model=None,
        max_turns=3,
    )
    assert to_entry(job) == {
        "id": "abcdefghij",
        "name": "nightly",
        "description": "nightly",
        "schedule": "2026-06-01T12:05:00.000Z",
        "scheduleType": "once",
        "subagent_type": "Explore",
        "prompt": "look",
        "max_turns": 3,
        "enabled": True,
        "createdAt": "2026-06-01T12:00:00.000Z",
        "nextRun": "2026-06-01T12:05:00.000Z",
        "runCount": 0,
    }


def test_entry_keeps_every_member() -> None:
    entry = to_entry(parse_job(FULL), {"ours": 1, "model": "old"})
    assert list(entry.items()) == [*FULL.items(), ("ours", 1)]


def test_null_means_absent() -> None:
    assert parse_job({**FULL, "model": None, "future": [1]}) == parse_job(
        {key: value for key, value in FULL.items() if key != "model"}
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (7, "is not a scheduled job: Expected `object`, got `int`"),
        ({**FULL, "intervalMs": "5"}, r"\$.intervalMs"),
        ({**FULL, "scheduleType": "often"}, r"\$.scheduleType"),
        ({key: value for key, value in FULL.items() if key != "prompt"}, "`prompt`"),
    ],
)
def test_wrong_entry_is_named(entry: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_job(entry)


def test_ids_are_ten_letters() -> None:
    ids = {make_job_id() for _ in range(200)}
    assert len(ids) == 200
    assert {(len(job_id), job_id.isalnum(), job_id.isascii()) for job_id in ids} == {(10, True, True)}

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import UsageError
from retinue.features.schedule.parse import Schedule, parse_schedule
from retinue.features.schedule.zone import to_iso, to_ms

NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2026, 3, 7, 12, tzinfo=NEW_YORK)

ACCEPTED = {
    "+10m": ("once", "2026-03-07T17:10:00.000Z"),
    " +1s ": ("once", "2026-03-07T17:00:01.000Z"),
    "+30d": ("once", "2026-04-06T17:00:00.000Z"),
    "5m": ("interval", "5m"),
    "005m": ("interval", "5m"),
    "30d": ("interval", "30d"),
    "2026-04-01T09:00:00Z": ("once", "2026-04-01T09:00:00.000Z"),
    "2026-04-01T09:00:00.250+02:00": ("once", "2026-04-01T07:00:00.250Z"),
    "2026-04-01T09:00": ("once", "2026-04-01T13:00:00.000Z"),
    "9999-12-31T23:59:59Z": ("once", "9999-12-31T23:59:59.000Z"),
    "0 0 9 * * 1-5": ("cron", "0 0 9 * * 1-5"),
    "0  0 9 ? jan,Feb MON-fri": ("cron", "0 0 9 ? jan,Feb MON-fri"),
    "*/5 * * * * *": ("cron", "*/5 * * * * *"),
    "0 0 0 29 2 *": ("cron", "0 0 0 29 2 *"),
    "0 0 9 L * *": ("cron", "0 0 9 L * *"),
    "0 0 9 * * MON#2": ("cron", "0 0 9 * * MON#2"),
    "0 0 9 * * 7": ("cron", "0 0 9 * * 7"),
}
REFUSED = {
    "": "it is empty",
    " ": "it is empty",
    "5": 'a number needs a unit, such as "5m"',
    "10": 'a number needs a unit, such as "5m"',
    "5x": "the unit must be s, m, h or d",
    "-5m": "the time must not be negative",
    "0s": "the interval is shorter than 5s",
    "4s": "the interval is shorter than 5s",
    "0.5m": "the number must be whole",
    "99999999d": "it is longer than 36500d",
    "+99999999d": "it is longer than 36500d",
    "+": "the format is unknown",
    "+0m": "the delay must not be zero",
    "+-1h": "the time must not be negative",
    "1h30m": 'use one number with one unit, such as "90m" for an hour and a half',
    "5 m": "remove the space between number and unit",
    "5M": "the unit must be lower case: s, m, h or d",
    "\u0665m": "use only ASCII digits and letters",
    "@daily": 'abbreviations are not supported; write "0 0 0 * * *"',
    "24:00": "the format is unknown",
    "tomorrow": "the format is unknown",
    "\x1b[31m": "the format is unknown",
    "2026-02-30": "add the time of day after a T",
    "2026-04-01 09:00": "add the time of day after a T",
    "2026-02-30T00:00": "there is no such time (day is out of range for month)",
    "2026-04-01T24:00": "there is no such time (hour must be in 0..23)",
    "2026-04-01T9:00": "expected YYYY-MM-DDTHH:MM:SS, followed by Z or an offset such as +01:00",
    "9999-12-31T23:59:59-12:00": "the date is too far in the future or past",
    "0 9 * * 1": "cron needs 6 fields (second minute hour day month weekday) and this has 5; "
    "put the second first: '0 0 9 * * 1'",
    "0 0 31 2 *": "cron needs 6 fields (second minute hour day month weekday) and this has 5; "
    "put the second first: '0 0 0 31 2 *'",
    "0 0 9 * * 1, 2": "cron needs 6 fields (second minute hour day month weekday) and no spaces in lists",
    "0 0 9 * * 1 2027": "cron needs 6 fields (second minute hour day month weekday) and this has 7",
    "0 0 0 31 2 *": "it never fires, since no date matches",
    "0 0 0 */30 2 MON#5": "it never fires, since no date matches",
    "* * * * * *": "its second field '*' fires less than 5 s apart",
    "0,2 * * * * *": "its second field '0,2' fires less than 5 s apart",
    "0,58 * * * * *": "its second field '0,58' fires less than 5 s apart",
}
BAD_FIELDS = {
    "60 * * * * *": "the second field '60' is wrong; expected 0-59",
    "*/0 * * * * *": "the second field '*/0' is wrong; expected 0-59",
    "0 0/0 9 * * *": "the minute field '0/0' is wrong; expected 0-59",
    "0 0 24 * * *": "the hour field '24' is wrong; expected 0-23",
    "0 0 9 * * 8": "the weekday field '8' is wrong; expected 0-7 or SUN-SAT",
    "0 0 9 * * 5-1": "the weekday field '5-1' is wrong; expected 0-7 or SUN-SAT",
    "0 0 9 * * 1,,2": "the weekday field '1,,2' is wrong; expected 0-7 or SUN-SAT",
    "0 0 9 0 * *": "the day field '0' is wrong; expected 1-31",
    "0 0 9 * FOO *": "the month field 'FOO' is wrong; expected 1-12 or JAN-DEC",
    "0 0 \u0669 * * *": "the hour field '\\u0669' is wrong; expected 0-23",
}


@pytest.mark.spec("fleet:B79")
@pytest.mark.parametrize("text", ACCEPTED)
def test_formats_are_recognised(text: str) -> None:
    schedule = parse_schedule(text, NOW)
    assert (schedule.kind, schedule.text) == ACCEPTED[text]
    assert schedule.first_ms > to_ms(NOW)


@pytest.mark.spec("fleet:B79")
@pytest.mark.parametrize("text", REFUSED)
def test_wrong_texts_are_explained(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule(text, NOW)
    beginning, accepted = str(caught.value).split(". Use ")
    shown = ascii(text.strip())[1:-1]
    assert beginning == f'Invalid schedule "{shown}": {REFUSED[text]}'
    assert accepted == (
        '6-field cron (second minute hour day month weekday: "0 0 9 * * 1-5"), '
        'an interval of at least 5s ("5m", "1h"), or one time ("+10m", or ISO: "2030-01-31T09:00:00Z").'
    )


@pytest.mark.parametrize("text", BAD_FIELDS)
def test_wrong_fields_are_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule(text, NOW)
    assert f": {BAD_FIELDS[text]}" in str(caught.value)


@pytest.mark.spec("fleet:B79")
@pytest.mark.parametrize("text", ["2020-01-01T00:00:00Z", "2026-03-07T17:00:00Z"])
def test_past_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"^Scheduled time {text[:-1]}\.000Z is in the past\. Use 6-field"):
        parse_schedule(text, NOW)


def test_long_text_stays_short() -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule("5m " * 3500, NOW)
    assert "it is 10499 characters long" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_local_time_is_stated() -> None:
    schedule = parse_schedule("2026-04-01T09:00", NOW)
    assert schedule.text == "2026-04-01T13:00:00.000Z"
    assert schedule.note == "No zone was given, so it is local time (America/New_York, UTC-04:00)."


def test_skipped_time_moves_on() -> None:
    schedule = parse_schedule("2026-03-08T02:30", NOW)
    assert schedule.text == "2026-03-08T07:00:00.000Z"
    assert schedule.note.endswith("The clocks skip that time; it fires when they have changed.")


def test_repeated_time_fires_first() -> None:
    schedule = parse_schedule("2026-11-01T01:30", NOW)
    assert schedule.text == "2026-11-01T05:30:00.000Z"
    assert schedule.note.endswith("The clocks show that time twice; it fires the first time.")


@given(st.text(st.sampled_from("0159smhdSMHD+-*/?,#:TZLW .@\u0665é") | st.characters(), max_size=24))
def test_any_text_is_decided(text: str) -> None:
    try:
        schedule = parse_schedule(text, NOW)
    except UsageError as error:
        assert len(str(error)) < 600 and str(error).isprintable()
    else:
        again = parse_schedule(schedule.text, NOW)
        assert isinstance(again, Schedule) and again.first_ms == schedule.first_ms >= to_ms(NOW)
        assert to_iso(schedule.first_ms).endswith("Z")

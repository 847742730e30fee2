"""Parse schedules (once, interval, cron) and compute the next time of a cron expression.

Pure: the current time is an argument. Must not know jobs or files.
"""

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from retinue.core.errors import UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.features.schedule.zone import name_zone, resolve_wall, to_iso, to_ms

if TYPE_CHECKING:
    from cronsim import CronSim

MIN_GAP_S: Final = 5
"""Minimum time between two runs of one job."""

_FIELDS: Final = (
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day", "1-31, L or LW"),
    ("month", "1-12 or JAN-DEC"),
    ("weekday", "0-7 or SUN-SAT, with #1-#5 or L after a day"),
)
_FIELD: Final = re.compile(r"[0-9A-Za-z*?,/#-]+", re.ASCII)
_NEVER: Final = "it never fires, since no date matches"
# Any time without a zone is enough to check the fields.
_SOME_DAY: Final = datetime(2024, 1, 1)


def check_cron(text: str) -> str:
    """Return the expression with single spaces. Raises UsageError that says what is wrong."""
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise UsageError(_explain_count(parts))
    plain = " ".join(parts)
    simulation = _open(plain, _SOME_DAY) if all(map(_FIELD.fullmatch, parts)) else None
    if simulation is None:
        raise UsageError(_explain_field(parts))
    if next(simulation, None) is None:
        raise UsageError(_NEVER)
    seconds = sorted(simulation.seconds)
    if any(later - earlier < MIN_GAP_S for earlier, later in pairwise([*seconds, seconds[0] + 60])):
        raise UsageError(f"its second field {quote(parts[0], 40)} fires less than {MIN_GAP_S} s apart")
    return plain


def find_next_cron(text: str, after: datetime) -> datetime | None:
    """Return the first due time after a moment, in its zone; None if there is none or the expression is invalid."""
    simulation = _open(text, after.replace(tzinfo=None, fold=0))
    if simulation is None:
        return None
    try:
        if len(simulation.hours) == 24:
            # Due in every hour: follow elapsed hours, so that a repeated hour fires twice.
            every = _open(text, after)
            return None if every is None else next(every, None)
        after_ms = to_ms(after)
        for wall in simulation:
            moment = resolve_wall(wall, after.tzinfo)[0]
            # Skip times up to `after`: the first pass of a repeated hour, or the end of a gap.
            if to_ms(moment) > after_ms:
                return moment
    except (OverflowError, ValueError):
        return None  # after the last year of the calendar
    return None


def _open(text: str, after: datetime) -> "CronSim | None":
    from cronsim import CronSim, CronSimError  # imported only for schedules

    try:
        return CronSim(text.replace("?", "*"), after)
    except (CronSimError, ValueError, AssertionError):
        return None


def _explain_field(parts: list[str]) -> str:
    """Say which field is wrong; each is tried alone, because the library does not name it."""
    for index, (part, (name, accepted)) in enumerate(zip(parts, _FIELDS, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[index] = part
        if _FIELD.fullmatch(part) is None or _open(" ".join(alone), _SOME_DAY) is None:
            return (
                f"the {name} field {quote(part, 40)} is wrong; expected {accepted}, "
                "alone, in lists (1,2), rising ranges (1-5) or steps (*/2)"
            )
    return _NEVER


def _explain_count(parts: list[str]) -> str:
    wanted = "cron needs 6 fields (second minute hour day month weekday)"
    if len(parts) == 5:
        example = quote("0 " + " ".join(parts), 60)
        return f"{wanted} and this has 5; put the second first: {example}"
    if any(part.startswith(",") or part.endswith(",") for part in parts):
        return f"{wanted} and no spaces in lists"
    return f"{wanted} and this has {len(parts)}"


Kind = Literal["cron", "once", "interval"]

MAX_DAYS: Final = 36_500
_MAX_LENGTH: Final = 200
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_SPAN = late_pattern(r"(\+?)([0-9]+)([smhd])", re.ASCII)
_DATE = late_pattern(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T", re.ASCII)
_ISO = late_pattern(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[-+][0-9]{2}:?[0-9]{2})?", re.ASCII
)
_ACCEPTED: Final = (
    'Use 6-field cron (second minute hour day month weekday: "0 0 9 * * 1-5"), '
    f'an interval of at least {MIN_GAP_S}s ("5m", "1h"), or one time ("+10m", or ISO: "2030-01-31T09:00:00Z").'
)
_NICKNAMES: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MISTAKES: Final = tuple(
    (re.compile(pattern + r"\Z"), why)
    for pattern, why in (
        (r"[0-9]+", 'a number needs a unit, such as "5m"'),
        (r"\+?-.*", "the time must not be negative"),
        (r"\+?[0-9]+\s*[SMHD]", "the unit must be lower case: s, m, h or d"),
        (r"\+?[0-9]+\s+[smhd]", "remove the space between number and unit"),
        (r"\+?([0-9]+[smhd]\s*){2,}", 'use one number with one unit, such as "90m" for an hour and a half'),
        (r"\+?[0-9]*[.,][0-9]*\s*[smhd]?", "the number must be whole"),
        (r"\+?[0-9]+\s*[A-Za-z]+", "the unit must be s, m, h or d"),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}(\s.*)?", "add the time of day after a T"),
    )
)


@dataclass(frozen=True, slots=True)
class Schedule:
    kind: Kind
    text: str
    """As stored: ISO in UTC for a single time, otherwise as written."""
    first_ms: int
    interval_ms: int | None = None
    note: str = ""
    """What was assumed, as a sentence."""


def parse_schedule(text: str, now: datetime) -> Schedule:
    """Parse a schedule; `now` is local time with its zone. Raises UsageError that lists the accepted forms."""
    plain = text.strip()
    try:
        schedule = _parse(plain, now)
    except UsageError as error:
        raise UsageError(f'Invalid schedule "{quote(plain)[1:-1]}": {error}. {_ACCEPTED}') from None
    if schedule.first_ms <= to_ms(now):
        raise UsageError(f"Scheduled time {schedule.text} is in the past. {_ACCEPTED}")
    return schedule


def _parse(text: str, now: datetime) -> Schedule:
    if not text:
        raise UsageError("it is empty")
    if len(text) > _MAX_LENGTH:
        raise UsageError(f"it is {len(text)} characters long, and at most {_MAX_LENGTH} are read")
    if span := _SPAN.fullmatch(text):
        return _parse_span(span[1], int(span[2]), span[3], to_ms(now))
    if _DATE.match(text):
        return _parse_moment(text, now.tzinfo)
    if len(text.split()) < 5:
        raise UsageError(_explain_word(text))
    plain = check_cron(text)
    due = find_next_cron(plain, now)
    if due is None:
        raise UsageError(_NEVER)
    return Schedule("cron", plain, to_ms(due))


def _parse_span(sign: str, count: int, unit: str, now_ms: int) -> Schedule:
    span_ms = count * _UNIT_MS[unit]
    first_ms = now_ms + span_ms
    if span_ms > MAX_DAYS * _UNIT_MS["d"]:
        raise UsageError(f"it is longer than {MAX_DAYS}d")
    if sign:
        if span_ms == 0:
            raise UsageError("the delay must not be zero")
        return Schedule("once", to_iso(first_ms), first_ms)
    if span_ms < MIN_GAP_S * 1000:
        raise UsageError(f"the interval is shorter than {MIN_GAP_S}s")
    return Schedule("interval", f"{count}{unit}", first_ms, span_ms)


def _parse_moment(text: str, zone: tzinfo | None) -> Schedule:
    if _ISO.fullmatch(text) is None:
        raise UsageError("expected YYYY-MM-DDTHH:MM:SS, followed by Z or an offset such as +01:00")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return Schedule("once", to_iso(to_ms(moment)), to_ms(moment))
        due, wall = resolve_wall(moment, zone)
        note = f"No zone was given, so it is local time ({name_zone(due)})."
        if wall == "skipped":
            note += " The clocks skip that time; it fires when they have changed."
        if wall == "repeated":
            note += " The clocks show that time twice; it fires the first time."
        return Schedule("once", to_iso(to_ms(due)), to_ms(due), note=note)
    except OverflowError:
        raise UsageError("the date is too far in the future or past") from None
    except ValueError as error:
        raise UsageError(f"there is no such time ({error})") from None


def _explain_word(text: str) -> str:
    """Say why a text that is not cron is not a valid schedule."""
    if text.lower() in _NICKNAMES:
        return f'abbreviations are not supported; write "{_NICKNAMES[text.lower()]}"'
    if not text.isascii():
        return "use only ASCII digits and letters"
    for pattern, why in _MISTAKES:
        if pattern.match(text):
            return why
    return "the format is unknown"

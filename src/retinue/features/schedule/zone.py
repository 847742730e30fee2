"""Convert between local time, instants and ISO texts, including hours that a clock change skips or repeats.

Instants are milliseconds since the epoch. Pure except for the system's zone rules; must not know schedules.
"""

import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE: Final = timedelta(minutes=1)

Wall = Literal["plain", "skipped", "repeated"]


class LocalZone(tzinfo):
    """The machine's time zone with all its rules; `datetime.astimezone()` alone gives only the current offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else _to_offset(moment.replace(tzinfo=None))

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Unknown: the system reports only the total offset."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """Return the local time of an instant; `fold` is set in the second pass of a repeated hour."""
        instant = moment.replace(tzinfo=UTC)
        wall = instant.astimezone().replace(tzinfo=None)
        return wall.replace(tzinfo=self, fold=int(wall - _to_offset(wall) != moment.replace(tzinfo=None)))

    def refresh(self) -> tuple[object, ...]:
        """Read the system's zone again; the result differs if it changed."""
        if hasattr(time, "tzset"):
            time.tzset()
        return time.tzname, time.timezone, time.altzone


def _to_offset(wall: datetime) -> timedelta:
    # Not astimezone: in a gap it uses the offset of the other side.
    whole = wall.replace(microsecond=0)
    instant = EPOCH + timedelta(seconds=round(whole.timestamp()))
    return whole.replace(fold=0) - instant.replace(tzinfo=None)


def to_ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def to_local(instant_ms: int, zone: tzinfo) -> datetime:
    return (EPOCH + timedelta(milliseconds=instant_ms)).astimezone(zone)


def to_iso(instant_ms: int) -> str:
    """Return an instant as stored in job files: UTC, milliseconds, `Z`."""
    moment = EPOCH + timedelta(milliseconds=instant_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_iso(text: str | None) -> int | None:
    """Parse an instant of a job file; None if it is missing or invalid."""
    try:
        moment = datetime.fromisoformat(text or "")
        return None if moment.tzinfo is None else to_ms(moment.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def resolve_wall(wall: datetime, zone: tzinfo | None) -> tuple[datetime, Wall]:
    """Return the instant of a local time: the first of two, or the end of the gap if the clocks skip it."""
    first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    assert before is not None and after is not None
    if before == after:
        return first, "plain"
    if before > after:
        return first, "repeated"
    later = wall.replace(second=0, microsecond=0)
    while True:
        later += _MINUTE
        first, second = later.replace(tzinfo=zone, fold=0), later.replace(tzinfo=zone, fold=1)
        if first.utcoffset() == second.utcoffset():
            return first, "skipped"


def name_zone(moment: datetime) -> str:
    """Return the zone's name and offset, such as `Europe/Berlin, UTC+01:00`."""
    offset = moment.strftime("%z")
    name = str(getattr(moment.tzinfo, "key", "") or moment.tzname() or "local time")
    return f"{name}, UTC{offset[:3]}:{offset[3:5]}"

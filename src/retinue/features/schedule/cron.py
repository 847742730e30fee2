"""Cron texts of six fields, seconds first: checked field by field, and the next time one is due.

An hour that the clocks skip or repeat counts once. Must not know jobs.
"""

import re
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from retinue.core.errors import UsageError, quote
from retinue.features.schedule.zone import resolve_wall, to_ms

if TYPE_CHECKING:
    from cronsim import CronSim

MIN_GAP_S: Final = 5
"""The shortest time between two fires of one job."""

_FIELDS: Final = (
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day", "1-31, L or LW"),
    ("month", "1-12 or JAN-DEC"),
    ("weekday", "0-7 or SUN-SAT, with #1-#5 or L behind a day"),
)
_FIELD: Final = re.compile(r"[0-9A-Za-z*?,/#-]+", re.ASCII)
_NEVER: Final = "it never fires, since no date matches"
# Any time without a zone will do for looking at the fields alone.
_SOME_DAY: Final = datetime(2024, 1, 1)


def check_cron(text: str) -> str:
    """The text with single blanks, or UsageError saying what is wrong with it."""
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
    """The first due time after a moment, in that moment's zone; None when there is none or the text is wrong."""
    zone = after.tzinfo
    simulation = _open(text, after if zone is None else after.replace(tzinfo=None, fold=0))
    if simulation is None:
        return None
    try:
        if zone is None:
            return next(simulation, None)
        if len(simulation.hours) == 24:
            # Due in every hour: follows the hours as they pass, so the hour that comes twice is served twice.
            every = _open(text, after)
            return None if every is None else next(every, None)
        after_ms = to_ms(after)
        for wall in simulation:
            moment = resolve_wall(wall, zone)[0]
            # What came before is the first pass of the hour that is now repeated, or the end of the gap.
            if to_ms(moment) > after_ms:
                return moment
    except (OverflowError, ValueError):
        return None  # beyond the calendar's last year
    return None


def _open(text: str, after: datetime) -> "CronSim | None":
    from cronsim import CronSim, CronSimError  # only schedules pay for this import

    try:
        return CronSim(text.replace("?", "*"), after)
    except (CronSimError, ValueError, AssertionError):
        return None


def _explain_field(parts: list[str]) -> str:
    """Which field is wrong: each is tried alone, since the library names neither its text nor what it accepts."""
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
        return f"{wanted} and lists without blanks"
    return f"{wanted} and this has {len(parts)}"

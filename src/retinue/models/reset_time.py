"""Find out from a refusal when a provider can be asked again: response headers, fields of the body, words in it.

Providers name the moment as seconds, milliseconds, durations such as `6m0s`, dates, seconds of the epoch, or a time of
the day. `now_s` is the provider's time. No state; only the zone of this machine is read, for times without one.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from retinue.core.pattern import late_pattern

_EPOCH_S = 1e9
_EPOCH_MS = 1e12
LONGEST_S = 1e9
_DURATION = late_pattern(r"(\d+(?:\.\d+)?)\s*(ms|us|µs|ns|s|m|h|d)[a-z]*", re.IGNORECASE)
_WHOLE_DURATION = late_pattern(rf"(?:{_DURATION.pattern}\s*)+", re.IGNORECASE)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WAITS = ("resets_in_seconds", "reset_after_seconds", "retry_after_seconds", "retry_after", "retryAfter")
_MOMENTS = ("resets_at", "reset_at", "reset_time", "resetsAt", "resetTime", "quotaResetTimeStamp")
_HEADER = late_pattern(r"rate-?limit.*-reset\b")
_NOT_OURS = "overage"
"""Anthropic reports the limit of extra usage, which is rejected where nobody has bought any."""
_NONE_LEFT = ("rejected", "exceeded")
_AGAIN = r"(?:try again|retry|resets?|regain access|available again)"
_IN = rf"(?i)(?:{_AGAIN} (?:in|after)|please wait) (?:about )?((?:{_DURATION.pattern}(?:,| and)?\s*)+)"
_OFFSET = r"(?:UTC|GMT)?([+-])(\d\d?):?(\d\d)?"
_ZONE = r"(?: ?\(?(Z\b|(?:UTC|GMT)?[+-]\d\d?(?::?\d\d)?|UTC|GMT|[a-z]+/[a-z_/-]+))?"
_TIME = rf"(?: at |T| )(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?{_ZONE}"
_ON = rf"(?i){_AGAIN}(?: at| on)?:? (\d{{4}}-\d\d-\d\d)(?:{_TIME})?"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAY = rf"({'|'.join(_MONTHS)})[a-z]* (\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?,?(?: at)? "
_AT = rf"(?i){_AGAIN}(?: at| on)?:? (?:{_DAY})?(\d{{1,2}})(?::(\d\d))?(?: ?([ap])\.?m\b|(?<=:\d\d)){_ZONE}"
_DAILY_ZONE = "America/Los_Angeles"
"""Google's quotas for a day begin at midnight there."""
_NEAR_S = 300.0
_BAR = late_pattern(r"(?i)limit reached\|(\d{10,13})\b")


def find_reset_s(headers: Mapping[str, str], error: Mapping[str, Any] | None, text: str, now_s: float) -> float | None:
    """Seconds until the provider can be asked again; None if it does not say. `text` is the message of the error."""
    told = next(_list_body(error or {}, now_s), None)
    if (told or 0) < _NEAR_S and _is_daily(error or {}):
        midnight = datetime.fromtimestamp(now_s, _find_zone(_DAILY_ZONE)).replace(hour=0, minute=0, second=0)
        return (midnight + timedelta(days=1)).timestamp() - now_s  # RetryInfo names some seconds at most
    if told is None:
        told = _read_headers(headers, now_s)
    return _read_text(text, now_s) if told is None else told


def read_moment_s(value: Any, now_s: float) -> float | None:
    """Seconds until a moment or the length of a duration, in any common form; None if it cannot be read."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return _read_words(str(value).strip(), now_s)
    if not 0 <= number < float("inf"):
        return None
    if number >= _EPOCH_MS:
        number /= 1000
    return min(max(0.0, number - now_s) if number >= _EPOCH_S else number, LONGEST_S)


def read_date_s(text: str, now_s: float) -> float | None:
    """Seconds until a date of RFC 3339 or HTTP; 0 for the past, None if it is neither."""
    moment_s = parse_date(text)
    return None if moment_s is None else min(max(0.0, moment_s - now_s), LONGEST_S)


def parse_date(text: str) -> float | None:
    """Seconds of the epoch of a date of RFC 3339 or HTTP; None if it is neither."""
    from email.utils import parsedate_to_datetime

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
            return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def _read_words(text: str, now_s: float) -> float | None:
    if _WHOLE_DURATION.fullmatch(text):
        return _sum_parts(text)
    return read_date_s(text, now_s)


def _sum_parts(text: str) -> float:
    return min(sum(float(amount) * _UNITS_S[unit.lower()] for amount, unit in _DURATION.findall(text)), LONGEST_S)


def _list_body(error: Mapping[str, Any], now_s: float) -> Iterator[float]:
    holders = [error, error.get("metadata")]
    holders += details if isinstance(details := error.get("details"), list) else [details]
    for holder in holders:
        if not isinstance(holder, dict):
            continue
        found = [holder.get("retryDelay"), *(holder.get(name) for name in (*_WAITS, *_MOMENTS))]
        yield from (seconds for each in found if (seconds := read_moment_s(each, now_s)) is not None)
        # OpenRouter repeats the headers of the upstream provider; Google nests values of its own.
        for inner in (holder.get("headers"), holder.get("metadata")):
            if isinstance(inner, dict):
                lower = {str(name).lower(): str(value) for name, value in inner.items()}
                yield from filter(None, (_read_headers(lower, now_s), read_moment_s(inner.get(_MOMENTS[-1]), now_s)))


def _read_headers(headers: Mapping[str, str], now_s: float) -> float | None:
    """The latest reset of the limits that are used up; if no header says which are, the latest of all."""
    spent, unknown = list[float](), list[float]()
    for name, value in headers.items():
        name = name.lower()
        if not _HEADER.search(name) or _NOT_OURS in name or (seconds := read_moment_s(value, now_s)) is None:
            continue
        left = next((headers[key] for key in _list_siblings(name) if key in headers), None)
        if left is None:
            unknown.append(seconds)
        elif _is_spent(left.strip().lower()):
            spent.append(seconds)
    return max(spent or unknown, default=None)


def _list_siblings(name: str) -> tuple[str, ...]:
    """Headers that say whether the limit of a reset header is used up."""
    return name.replace("reset", "remaining"), name.replace("reset", "status")


def _is_spent(left: str) -> bool:
    try:
        return float(left) <= 0
    except ValueError:
        return left in _NONE_LEFT


def _is_daily(error: Mapping[str, Any]) -> bool:
    """Whether a quota for a day is used up, and not one that this account does not have."""
    details = error.get("details")
    listed = [each.get("violations") for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    violations = [each for every in listed if isinstance(every, list) for each in every if isinstance(each, dict)]
    return any("PerDay" in str(each.get("quotaId")) and each.get("quotaValue") != "0" for each in violations)


def _read_text(text: str, now_s: float) -> float | None:
    if found := _BAR.search(text):
        return read_moment_s(found[1], now_s)
    try:
        if found := re.search(_ON, text):
            moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}")
            return _measure(moment.replace(tzinfo=_find_zone(found[3] or "UTC")), now_s)
        if found := re.search(_AT, text):
            return _measure(_read_clock(found, now_s), now_s)
    except (ValueError, OverflowError):
        return None
    return _sum_parts(found[1]) if (found := re.search(_IN, text)) else None


def _measure(moment: datetime, now_s: float) -> float:
    return min(max(0.0, moment.timestamp() - now_s), LONGEST_S)


def _read_clock(found: re.Match[str], now_s: float) -> datetime:
    """The next moment at which it is this time of the day, or of this day."""
    month, day, year, hour, minute, half, zone = found.groups()
    now = datetime.fromtimestamp(now_s, _find_zone(zone)) if zone else datetime.fromtimestamp(now_s).astimezone()
    hours = int(hour) % 12 + 12 * (half.lower() == "p") if half else int(hour)
    moment = now.replace(hour=hours, minute=int(minute or 0), second=0, microsecond=0)
    past = now - timedelta(minutes=1)  # the time has no seconds
    if not month:
        return moment if moment > past else moment + timedelta(days=1)
    moment = moment.replace(int(year or now.year), _MONTHS.index(month.lower()) + 1, int(day))
    return moment if year or moment > past else moment.replace(moment.year + 1)


def _find_zone(name: str) -> tzinfo:
    if name.upper() in ("Z", "UTC", "GMT"):
        return UTC
    if found := re.fullmatch(_OFFSET, name, re.IGNORECASE):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return UTC

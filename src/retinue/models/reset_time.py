"""Find out from a refusal when a provider can be asked again: response headers, fields of the body, words in it.

Pure. Providers name the moment as seconds, milliseconds, durations such as `6m0s`, dates, or seconds of the epoch.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

_EPOCH_S = 1e9
_EPOCH_MS = 1e12
LONGEST_S = 1e9
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|us|µs|ns|s|m|h|d)[a-z]*", re.IGNORECASE)
_WHOLE_DURATION = re.compile(rf"(?:{_DURATION.pattern}\s*)+", re.IGNORECASE)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WAITS = ("resets_in_seconds", "reset_after_seconds", "retry_after_seconds", "retry_after", "retryAfter")
_MOMENTS = ("resets_at", "reset_at", "reset_time", "resetsAt", "resetTime", "quotaResetTimeStamp")
_HEADER = re.compile(r"rate-?limit.*-reset\b")
_NONE_LEFT = ("0", "0.0", "rejected", "exceeded")
_AGAIN = r"(?i)(?:try again|retry|resets?|regain access|available again)"
_IN = re.compile(rf"{_AGAIN} (?:in|after) (?:about )?((?:{_DURATION.pattern},?\s*)+)")
_ON = re.compile(rf"{_AGAIN}(?: at| on)?:? (\d{{4}}-\d\d-\d\d)(?:(?: at |T| )(\d\d:\d\d(?::\d\d)?))?")
_BAR = re.compile(r"(?i)limit reached\|(\d{10,13})\b")


def find_reset_s(headers: Mapping[str, str], error: Mapping[str, Any] | None, text: str, now_s: float) -> float | None:
    """Seconds until the provider can be asked again; None if it does not say. `text` is the message of the error."""
    told = next(_list_body(error or {}, now_s), None)
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
    from email.utils import parsedate_to_datetime

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return min(max(0.0, moment.timestamp() - now_s), LONGEST_S)
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
        if not _HEADER.search(name) or (seconds := read_moment_s(value, now_s)) is None:
            continue
        left = next((headers[key] for key in _list_siblings(name) if key in headers), None)
        if left is None:
            unknown.append(seconds)
        elif left.strip().lower() in _NONE_LEFT:
            spent.append(seconds)
    return max(spent or unknown, default=None)


def _list_siblings(name: str) -> tuple[str, ...]:
    """Headers that say whether the limit of a reset header is used up."""
    return name.replace("reset", "remaining"), name.replace("reset", "status")


def _read_text(text: str, now_s: float) -> float | None:
    if found := _BAR.search(text):
        return read_moment_s(found[1], now_s)
    if found := _ON.search(text):
        return read_date_s(f"{found[1]}T{found[2] or '00:00'}+00:00", now_s)
    return _sum_parts(found[1]) if (found := _IN.search(text)) else None

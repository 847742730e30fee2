"""Reads and checks the arguments of a tool call. Errors are written so that a model can correct the call."""

import math
from collections.abc import Mapping
from typing import Any

from retinue.core.errors import ToolRetry, quote

MAX_PATH_BYTES = 4095


def take_text(arguments: Mapping[str, Any], name: str, *, default: str | None = None, blank: bool = True) -> str:
    """Return a string argument. Raises ToolRetry if it is missing and there is no default."""
    value = arguments.get(name)
    if value is None:
        if default is None:
            raise ToolRetry(f"{name} is missing: expected a string.")
        return default
    if not isinstance(value, str):
        raise ToolRetry(f"{name} is {quote(value)}: expected a string.")
    if not blank and not value.strip():
        raise ToolRetry(f"{name} is {quote(value)}: expected a string that is not blank.")
    return value


def take_path(arguments: Mapping[str, Any], name: str = "path", *, default: str | None = None) -> str:
    """Return a path argument that is not blank and is usable as a path (encodable, no NUL, not too long)."""
    value = take_text(arguments, name, default=default, blank=False)
    if "\0" in value:
        raise ToolRetry(f"{name} is {quote(value)}: a path cannot contain a NUL character.")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise ToolRetry(f"{name} is {quote(value)}: it contains a lone surrogate, which no path has.") from None
    if size > MAX_PATH_BYTES:
        raise ToolRetry(f"{name} is {quote(value)}: {size} bytes are too long for a path (at most {MAX_PATH_BYTES}).")
    return value


def is_whole(value: Any) -> bool:
    """Whether a value is a finite whole number. 5.0 counts, True does not."""
    is_number = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return is_number and not isinstance(value, bool)


def take_count(arguments: Mapping[str, Any], name: str, default: int, *, least: int = 1) -> int:
    """Return a whole number of at least `least`. 5.0 is read as 5."""
    value = arguments.get(name)
    if value is None:
        return default
    if not is_whole(value) or value < least:
        raise ToolRetry(f"{name} is {quote(value)}: expected a whole number, {least} or more.")
    return int(value)


def take_flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ToolRetry(f"{name} is {quote(value)}: expected true or false.")
    return value


def take_seconds(arguments: Mapping[str, Any], name: str, *, most: int) -> float | None:
    """Return a positive, finite number of seconds, or None if the argument is missing."""
    value = arguments.get(name)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= most:
        raise ToolRetry(f"{name} is {quote(value)}: expected a number of seconds above 0, at most {most}.")
    return float(value)

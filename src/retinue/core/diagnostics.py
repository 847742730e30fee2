"""Diagnostics: problems in files or variables that are reported without stopping.

This file must not know which files exist.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.errors import quote


class Diagnostic(Struct, frozen=True, omit_defaults=True):
    """One problem, for a line on stderr or an entry in a JSON list."""

    message: str
    """A complete sentence: what was found, where, and what is accepted."""
    path: str = ""
    line: int | None = None
    severity: Literal["error", "warning"] = "error"
    code: str = ""
    field: str = ""
    """Dotted path of the field in the file."""


State: TypeAlias = Literal["pass", "warn", "fail", "info"]


class Item(Struct, frozen=True):
    """One check of `retinue doctor`."""

    status: State
    category: str
    message: str
    details: str = ""


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the closest known name, or an empty string."""
    from difflib import get_close_matches  # slow import, needed only after a mistake

    names = list(known)
    by_case = {known_name.lower(): known_name for known_name in reversed(names)}
    close = get_close_matches(name.lower(), list(by_case), n=1, cutoff=0.65)
    return f" (did you mean {quote(by_case[close[0]])}?)" if close else ""


def show_value(value: object) -> str:
    """Format a bad value for a message: as JSON if it is short, otherwise its type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return str(value)[:40]
    if isinstance(value, str):
        return quote(value)
    return "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else quote(value)

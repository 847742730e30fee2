"""Validate a value against a JSON schema, with errors that name the path.

Supports the part of the standard that tool schemas use and ignores unknown keywords. Pure and fast: it runs before
every tool call.
"""

import math
from collections.abc import Iterator
from typing import Any

from retinue.core.errors import quote

_NAMES = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPES: dict[str, Any] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def fit_arguments(value: Any, schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert numbers given as text; returns the arguments and one sentence for each error."""
    problems: list[str] = []
    fitted = _fit(value, schema, "", problems)
    return (fitted if isinstance(fitted, dict) else {}), problems


def _fit(value: Any, schema: dict[str, Any], path: str, problems: list[str]) -> Any:
    wanted = schema.get("type")
    if wanted is not None and not (type(wanted) is str and type(value) is _TYPES.get(wanted)):
        value = _convert(value, wanted)
        if not any(_is_type(value, name) for name in _each(wanted)):
            names = " or ".join(_NAMES.get(name, name) for name in _each(wanted))
            problems.append(f"{_at(path)} must be {names}, not {quote(value)}")
            return value
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        problems.append(f"{_at(path)} must be one of {', '.join(map(quote, choices))}, not {quote(value)}")
    if isinstance(value, dict):
        return _fit_object(value, schema, path, problems)
    if isinstance(value, list):
        return _fit_list(value, schema, path, problems)
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(value, schema, path, problems)
    elif isinstance(value, str) and len(value) < schema.get("minLength", 0):
        problems.append(f"{_at(path)} must not be empty")
    return value


def _fit_object(value: dict[str, Any], schema: dict[str, Any], path: str, problems: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    fitted: dict[str, Any] = {}
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if name in fields:
            if name not in required and _is_absent(item, fields[name]):
                continue
            fitted[name] = _fit(item, fields[name], where, problems)
        elif fields and schema.get("additionalProperties") is not True:
            from difflib import get_close_matches  # slow import, needed only after a mistake

            close = get_close_matches(name, fields, 1, 0.4)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            problems.append(f"{quote(where)} is not an argument; accepted: {', '.join(fields)}{hint}")
        else:
            fitted[name] = item
    for name in required:
        if name not in value:
            problems.append(f"{quote(f'{path}.{name}' if path else name)} is missing")
    return fitted


def _is_absent(value: Any, schema: dict[str, Any]) -> bool:
    """Models send null, or an empty string that does not fit, for an optional field they want to omit."""
    if value is None:
        return not _is_type(None, schema.get("type", "null"))
    return value == "" and (not _is_type("", schema.get("type", "string")) or "" not in schema.get("enum", ("",)))


def _fit_list(value: list[Any], schema: dict[str, Any], path: str, problems: list[str]) -> list[Any]:
    if len(value) < schema.get("minItems", 0):
        problems.append(f"{_at(path)} needs at least {schema['minItems']} item(s)")
    items = schema.get("items")
    if not isinstance(items, dict):
        return value
    return [_fit(item, items, f"{path}[{index}]", problems) for index, item in enumerate(value)]


def _check_range(value: float, schema: dict[str, Any], path: str, problems: list[str]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{_at(path)} must be a finite number")
    elif value < schema.get("minimum", -math.inf):
        problems.append(f"{_at(path)} must be at least {schema['minimum']}, not {quote(value)}")
    elif value > schema.get("maximum", math.inf):
        problems.append(f"{_at(path)} must be at most {schema['maximum']}, not {quote(value)}")


def _convert(value: Any, wanted: str | list[str]) -> Any:
    """Some models send numbers as text and whole numbers as floats; other values are unchanged."""
    names = set(_each(wanted))
    if isinstance(value, str) and names & {"number", "integer"} and "string" not in names:
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return value
    if isinstance(value, float) and "integer" in names and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def _is_type(value: Any, name: str | list[str]) -> bool:
    if isinstance(name, list):
        return any(_is_type(value, each) for each in name)
    if isinstance(value, bool):
        return name == "boolean"
    return name not in _TYPES or isinstance(value, _TYPES[name])


def _each(wanted: str | list[str]) -> Iterator[str]:
    return iter((wanted,) if isinstance(wanted, str) else wanted)


def _at(path: str) -> str:
    return quote(path) if path else "the arguments"

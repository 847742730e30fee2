"""The arguments of a tool call as a model wrote them: parsed, or refused with a sentence the model can act on. Pure."""

import json
from typing import Any

import orjson

_DEPTH_CHECK_CHARS = 500
"""Shorter arguments cannot be nested deeper than the serialisers go."""


def parse_arguments(raw: str | bytes) -> tuple[dict[str, Any], str]:
    """The arguments and an empty string, or what is usable of them and what is wrong."""
    if not raw or raw.isspace():
        return {}, ""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return {}, _explain(error, raw)
    if value is None:
        return {}, ""
    if type(value) is not dict:
        return {}, f"The arguments must be a JSON object, not {_name_type(value)}; the tool was not run."
    if len(raw) > _DEPTH_CHECK_CHARS and (fault := check_arguments(value)):
        return {}, fault
    # Every member has a colon of its own: no more of them than keys means that none is there twice.
    colons = raw.count(":") if isinstance(raw, str) else raw.count(b":")
    if colons > len(value) and (twice := _find_duplicate(raw)):
        return value, f"The arguments have the key {twice!r} twice; the tool was not run. Send each key once."
    return value, ""


def check_arguments(value: Any, *, strict: bool = False) -> str:
    """What is wrong with arguments that came already parsed; empty when they can be used and sent again."""
    if type(value) is not dict:
        return f"The arguments must be a JSON object, not {_name_type(value)}; the tool was not run."
    try:
        orjson.dumps(value)
        if strict:
            json.dumps(value, allow_nan=False)
    except ValueError as error:
        return f"The arguments cannot be used ({error}); the tool was not run."
    except TypeError as error:
        cause = str(error)
        if "Recursion" in cause:
            cause = "they are nested too deeply"
        return f"The arguments cannot be used ({cause}); the tool was not run."
    return ""


def _explain(error: orjson.JSONDecodeError, raw: str | bytes) -> str:
    where = f"at character {error.pos} of {len(raw)}"
    if "depth" in error.msg or "recursion" in error.msg:
        return f"The arguments are nested too deeply ({where}); the tool was not run. Send a flatter object."
    if error.pos >= len(raw):
        return f"The arguments were cut off {where}; the tool was not run. Send them in full, or in smaller parts."
    shown = raw[max(0, error.pos - 20) : error.pos + 20]
    near = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else shown
    return f"The arguments are not valid JSON: {error.msg} {where}, near {near!a}; the tool was not run."


def _name_type(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    names: dict[type, str] = {list: "an array", str: "a string", int: "a number", float: "a number", dict: "an object"}
    return names.get(type(value), "something else")


def _find_duplicate(raw: str | bytes) -> str:
    found: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        parsed = dict(pairs)
        if len(parsed) != len(pairs) and not found:
            seen: set[str] = set()
            found.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return parsed

    try:
        json.loads(raw, object_pairs_hook=collect)
    except (ValueError, RecursionError):
        return ""
    return found[0][:80] if found else ""

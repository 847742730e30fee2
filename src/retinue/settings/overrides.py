"""Settings given in Python that override all files: validated like a file's, but a mistake is an error.

Must not know who sets them or what a setting does.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from os import fspath
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from retinue.core.diagnostics import suggest
from retinue.core.errors import UsageError, quote
from retinue.settings.checks import Setting, to_key
from retinue.settings.layers import read_layer
from retinue.settings.schema import SETTINGS
from retinue.settings.subagents import SUBAGENT_SETTINGS

WHERE = "Retinue"


class Overrides(Struct, frozen=True):
    """The given values by the keys of the two files, validated."""

    main: Mapping[str, Any] = {}
    """Settings of settings.json."""
    crew: Mapping[str, Any] = {}
    """Settings of subagents.json."""


def read_overrides(given: Mapping[str, Any]) -> Overrides:
    """Read settings by their Python or file names; a section is a mapping. Raises UsageError with all mistakes."""
    ours, theirs = _list_known()
    main: dict[str, Any] = {}
    crew: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in given.items():
        key = to_key(name)
        if key in ours:
            main[key] = _to_plain(value, key, ours)
        elif key in theirs:
            crew[key] = _to_plain(value, key, theirs)
        else:
            near = suggest(name, sorted(_to_name(known) for known in ours | theirs if "." not in known))
            problems.append(f"{WHERE}: unknown setting {quote(name)}{near}")
    layers = []
    for table, values in ((SETTINGS, main), (SUBAGENT_SETTINGS, crew)):
        layer, found = read_layer(table, values, "flag", WHERE)
        problems += [item.message for item in found]
        layers.append(layer.values)
    if problems:
        raise UsageError("\n".join(problems))
    return Overrides(*layers)


@cache
def _list_known() -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys of settings.json and of subagents.json."""
    return _list_keys(SETTINGS), _list_keys(SUBAGENT_SETTINGS)


def _list_keys(table: Iterable[Setting]) -> frozenset[str]:
    return frozenset(
        item.key[:end]
        for item in table
        for end in (*(at for at, char in enumerate(item.key) if char == "."), len(item.key))
    )


def _to_plain(value: Any, key: str, known: frozenset[str]) -> Any:
    """Convert a value to its form in a file; names are translated where they are settings."""
    if isinstance(value, Mapping):
        is_section = any(other.startswith(f"{key}.") for other in known)
        names = {name: to_key(name) if is_section and isinstance(name, str) else name for name in value}
        return {names[name]: _to_plain(item, f"{key}.{names[name]}", known) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(item, key, known) for item in value]
    return fspath(value) if isinstance(value, PurePath) else value


def _to_name(key: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in key)

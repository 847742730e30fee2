"""Validation of settings: checks that convert a value from a file, and the declaration of a setting.

Must not know which settings exist, where they come from or who uses them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs

from retinue.core.amounts import MOST as _LARGEST
from retinue.core.amounts import is_amount, is_count
from retinue.core.errors import UsageError, quote
from retinue.core.receipt import to_commands

T = TypeVar("T", bound=Struct)

Report = Callable[[str, object, str], None]
"""Receives the rest of the field's path, the invalid value and what is accepted."""


class Check(Struct, frozen=True):
    """What a setting accepts. `convert` raises ValueError to drop the field, or reports a part and drops only that."""

    accepts: str
    convert: Callable[[Any, Report], Any]
    merge: Callable[[Any, Any], Any] | None = None
    """Merges a value with that of the layer below; None: it replaces it."""
    choices: tuple[Any, ...] = ()
    """All accepted values, if they are few."""
    takes_null: bool = False
    """Whether null is a value; else null means that the setting is missing."""


class Limit(Struct, frozen=True):
    """Who may set a setting to what, and its key if that is not the field's name; in the annotation after the check."""

    user_only: bool = False
    off_only: bool = False
    """A project may switch it off, never on."""
    user_values: tuple[Any, ...] = ()
    """Values that a project may not choose."""
    key: str = ""


USER_ONLY, OFF_ONLY = Limit(user_only=True), Limit(off_only=True)


class Setting(NamedTuple):
    """One setting: its key in files, its field, and what it accepts."""

    key: str
    field: str
    """Dotted for a field of a section."""
    check: Check
    limit: Limit = Limit()

    def accepts_from_project(self, value: Any) -> bool:
        limit = self.limit
        return not (limit.user_only or (limit.off_only and value is True) or value in limit.user_values)


def list_settings(kind: type[Struct], key: str = "", field: str = "") -> Iterator[Setting]:
    """Yield the settings that a struct and its sections declare: `name: Annotated[type, check, limit]`.

    A section of another layer is annotated with the checks of its fields; only the user may set those.
    """
    for name, annotation in kind.__annotations__.items():
        marks = getattr(annotation, "__metadata__", ())
        match marks:
            case (Check() as check, *rest):
                limit = rest[0] if rest else Limit()
                yield Setting(key + (limit.key or to_key(name)), field + name, check, limit)
            case (Mapping() as checks,):
                for each, check in checks.items():
                    yield Setting(f"{key}{name}.{to_key(each)}", f"{field}{name}.{each}", check, USER_ONLY)
            case _:
                yield from list_settings(annotation, f"{key}{to_key(name)}.", f"{field}{name}.")


def to_key(name: str) -> str:
    """Convert `max_concurrent` to the spelling in files; a name in that spelling is unchanged."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _accept(
    accepts: str,
    is_fine: Callable[[Any], object],
    convert: Callable[[Any], Any] = lambda value: value,
    *,
    choices: tuple[Any, ...] = (),
    takes_null: bool = False,
) -> Check:
    def check(value: Any, report: Report) -> Any:
        if not is_fine(value):
            raise ValueError
        return convert(value)

    return Check(accepts, check, choices=choices, takes_null=takes_null)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def text() -> Check:
    return _accept("text that is not blank", _is_text)


def least(check: Check) -> Check:
    """Same check, but the smaller value of two layers wins; null means no limit."""

    def merge(below: Any, value: Any) -> Any:
        given = [each for each in (below, value) if each is not None]
        return min(given, default=None)

    return structs.replace(check, merge=merge)


def add_up(check: Check) -> Check:
    """Same check, but a list is added to that of the layer below."""
    return structs.replace(check, merge=lambda below, value: tuple(dict.fromkeys((*below, *value))))


def flag() -> Check:
    return _accept("true or false", lambda value: type(value) is bool, choices=(True, False))


def choice(*names: str) -> Check:
    accepts = "one of " + ", ".join(f'"{name}"' for name in names)
    return _accept(accepts, lambda value: isinstance(value, str) and value in names, choices=names)


def between(lowest: int, highest: int = _LARGEST) -> Check:
    accepts = f"a whole number from {lowest}" + (f" to {highest}" if highest != _LARGEST else "")
    return _accept(accepts, lambda value: is_count(value, lowest, highest), int)


def count(highest: int = _LARGEST, *, words: Mapping[str, int] | None = None) -> Check:
    """Accept a whole number from 0, or one of some words that stand for numbers."""
    number, known = between(0, highest), words or {}

    def convert(value: Any, report: Report) -> Any:
        return known[value] if isinstance(value, str) and value in known else number.convert(value, report)

    return Check(number.accepts + "".join(f' or "{word}"' for word in known), convert)


def amount() -> Check:
    accepts = "a number above 0, or null for no limit"
    return _accept(accepts, lambda value: value is None or is_amount(value), takes_null=True)


def optional(inner: Check, *words: object) -> Check:
    """Accept what another check accepts, or null (or one of the words) for none."""

    def convert(value: Any, report: Report) -> Any:
        return None if value is None or value in words else inner.convert(value, report)

    return Check(f"{inner.accepts}, or null for none", convert, takes_null=True)


def trimmed(*, blank: bool = False) -> Check:
    if blank:
        return _accept("text", lambda value: isinstance(value, str) and "\0" not in value, str.strip)
    return _accept("text that is not blank", _is_text, str.strip)


def commands() -> Check:
    """Accept one shell command or a list of them; a list with anything else is dropped, since it would check less."""

    def convert(value: Any, report: Report) -> tuple[str, ...]:
        try:
            return to_commands(value)
        except UsageError as error:
            raise ValueError from error

    return Check("a shell command, or a list of them", convert)


def some_of(*known: str, may_be_empty: bool = True) -> Check:
    """Accept a list of known words; unknown and repeated ones are dropped."""

    def convert(value: Any, report: Report) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError
        for index, item in enumerate(value):
            if item not in known or not isinstance(item, str):
                report(f"[{index}]", item, "one of " + ", ".join(known))
        kept = tuple(dict.fromkeys(item for item in value if isinstance(item, str) and item in known))
        if not kept and not may_be_empty:
            raise ValueError
        return kept

    return Check("a list of some of " + ", ".join(f'"{name}"' for name in known), convert)


def names() -> Check:
    """Accept a list of strings; other items are dropped."""

    def convert(value: Any, report: Report) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError
        found = []
        for index, item in enumerate(value):
            if isinstance(item, str) and item.strip():
                found.append(item)
            else:
                report(f"[{index}]", item, "text that is not blank")
        return tuple(found)

    return Check("a list of strings", convert)


def tools() -> Check:
    """Accept tool names, which replace the selection below, or only `+name` and `-name`, which change it."""
    return Check('a list of tool names, "+name" or "-name"', names().convert, select_tools)


def select_tools(below: tuple[str, ...], entries: tuple[str, ...]) -> tuple[str, ...]:
    """Apply a list of plain, `+` and `-` entries to a selection of tools."""
    plain = [entry for entry in entries if entry[0] not in "+-"]
    selected = list(dict.fromkeys(plain if plain or not entries else below))
    for entry in entries:
        sign, name = entry[0], entry[1:]
        if sign == "+" and name not in selected:
            selected.append(name)
        elif sign == "-":
            selected = [tool for tool in selected if tool != name]
    return tuple(selected)


def counts(*keys: str) -> Check:
    """Accept an object with a whole number under some of the keys."""

    def convert(value: Any, report: Report) -> dict[str, int]:
        if not isinstance(value, dict):
            raise ValueError
        found = {}
        for key, number in value.items():
            if number is None:
                continue
            if key not in keys:
                place = f".{key}" if key.isidentifier() else f"[{quote(key)}]"
                report(place, number, "only " + ", ".join(keys))
                continue
            if is_count(number):
                found[key] = int(number)
            else:
                report(f".{key}", number, "a whole number from 0")
        return found

    return Check("an object with numbers for " + ", ".join(keys), convert, lambda below, above: {**below, **above})


def by_model(inner: Check) -> Check:
    """Accept an object of objects whose outer keys are `provider/id`."""

    def convert(value: Any, report: Report) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError
        found = {}
        for ref, entry in value.items():

            def report_entry(rest: str, bad: object, accepts: str, ref: str = ref) -> None:
                report(f"[{quote(ref)}]{rest}", bad, accepts)

            if entry is None:
                continue
            try:
                found[ref] = inner.convert(entry, report_entry)
            except ValueError:
                report(f"[{quote(ref)}]", entry, inner.accepts)
        return found

    def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        return {ref: {**below.get(ref, {}), **above.get(ref, {})} for ref in {**below, **above}}

    return Check("an object with an entry for each provider/id", convert, merge)


def read_field(settings: object, setting: Setting) -> Any:
    return reduce(getattr, setting.field.split("."), settings)


def build_settings(settings: T, known: Iterable[Setting], values: Mapping[str, Any]) -> T:
    """Return a copy of the settings with some values replaced, by key."""
    for setting in known:
        if setting.key in values:
            settings = _replace(settings, setting.field, values[setting.key])
    return settings


def _replace(struct: T, field: str, value: Any) -> T:
    name, dot, rest = field.partition(".")
    return structs.replace(struct, **{name: _replace(getattr(struct, name), rest, value) if dot else value})

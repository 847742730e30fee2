"""Read one JSON object of a configuration file field by field; invalid values become diagnostics.

Values may be secrets: `apiKey`, `key` and headers never appear in a message.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from retinue.core.amounts import is_count, is_number
from retinue.core.diagnostics import Diagnostic, show_value, suggest
from retinue.core.errors import quote
from retinue.core.strictjson import name_type

_SECRET = ("apiKey", "key", "headers", "env", "access", "refresh")


class ConfigObject:
    """A JSON object and its position in a file."""

    def __init__(self, values: Mapping[str, Any], path: str, where: str, diagnostics: list[Diagnostic]) -> None:
        self.values = values
        self.path = path
        self.where = where
        self.diagnostics = diagnostics

    def complain(
        self, name: str, problem: str, accepted: str, *, severity: Literal["error", "warning"] = "error"
    ) -> None:
        """Report a problem with a field; without a name, with the whole object."""
        field = self._name(name)
        text = f"{self.path}: {field}: {problem}; expected {accepted}"
        self.diagnostics.append(Diagnostic(text, self.path, None, severity, "bad-field", field))

    def refuse(self, name: str, accepted: str) -> None:
        """Report the value found in a field and what is accepted."""
        value = self.values.get(name)
        hidden = any(part in _SECRET for part in (name, *self.where.split(".")))
        self.complain(name, f"found {name_type(value) if hidden else show_value(value)}", accepted)

    def check_keys(self, known: Iterable[str]) -> None:
        names = list(known)
        for name in self.values:
            if name not in names:
                text = f"{self.path}: unknown field {quote(self._name(name))}{suggest(name, names)}"
                self.diagnostics.append(Diagnostic(text, self.path, None, "warning", "unknown-key", self._name(name)))

    def take_object(self, name: str) -> "ConfigObject | None":
        """The object in a field; None if it is absent or, with a report, something else."""
        value = self.values.get(name)
        if isinstance(value, dict):
            return ConfigObject(value, self.path, self._name(name), self.diagnostics)
        if value is not None:
            # Do not show the value: it may be a key in the wrong place.
            self.complain(name, f"found {name_type(value)}", "an object")
        return None

    def take_objects(self, name: str) -> list["ConfigObject"]:
        """The objects in a list; other items are reported and left out."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            self.refuse(name, "a list of objects")
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if not isinstance(item, dict):
                self.complain(f"{name}[{index}]", f"found {name_type(item)}", "an object")
        return self.peek_objects(name)

    def peek_objects(self, name: str) -> list["ConfigObject"]:
        """The objects in a list; other items are ignored without a report."""
        value = self.values.get(name)
        items = enumerate(value) if isinstance(value, list) else ()
        return [
            ConfigObject(item, self.path, self._name(f"{name}[{index}]"), self.diagnostics)
            for index, item in items
            if isinstance(item, dict)
        ]

    def take_text(
        self, name: str, is_right: Callable[[str], bool] = bool, accepted: str = "text that is not empty"
    ) -> str | None:
        value: str | None = self._take(
            name, accepted, lambda value: isinstance(value, str) and bool(value) and is_right(value)
        )
        return value

    def take_flag(self, name: str) -> bool | None:
        value: bool | None = self._take(name, "true or false", lambda value: isinstance(value, bool))
        return value

    def take_count(self, name: str, lowest: int) -> int | None:
        """The whole number in a field, at least `lowest`."""
        value = self._take(name, f"a whole number from {lowest}", lambda value: is_count(value, lowest))
        return None if value is None else int(value)

    def take_number(self, name: str) -> float | None:
        """The number in a field, at least 0."""
        value: float | None = self._take(name, "a number from 0", lambda value: is_number(value, 0))
        return value

    def _take(self, name: str, accepted: str, is_right: Callable[[Any], bool]) -> Any:
        value = self.values.get(name)
        if value is None or is_right(value):
            return value
        self.refuse(name, accepted)
        return None

    def _name(self, name: str) -> str:
        # Ids of providers and models may contain dots; they are quoted then.
        shown = (
            name if name.replace("[", "").replace("]", "").replace("-", "").replace("_", "").isalnum() else quote(name)
        )
        return f"{self.where}.{shown}" if self.where and name else self.where or shown

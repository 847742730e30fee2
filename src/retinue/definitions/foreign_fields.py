"""The fields of a file of another tool, with a report of what becomes of each. Pure.

A restriction that cannot be expressed disables the agent and names the field. This file must not know what the fields
of a tool mean.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from retinue.core.definition import Dialect
from retinue.core.diagnostics import Diagnostic
from retinue.core.pattern import late_pattern
from retinue.definitions.fields import AgentFields, fold_key, show, show_place
from retinue.definitions.frontmatter import (
    FrontmatterBlock,
    FrontmatterField,
    Items,
    Scalar,
    Value,
    YamlTable,
)

# Words in the name of an unknown field that say that it restricts the agent.
_RESTRICTING = late_pattern(
    r"permi|den(y|ied)|allow|forbid|block|restrict|constrain|exclu|readonly|sandbox|tool|approv|limit|max|policy"
    r"|network|isolat|disab|enabl|timeout|budget|access|writ|secur|guard|only|never|safe"
)
# Fields of which the last one counts if a file has two, since they restrict nothing.
_FREE = frozenset(("name", "description", "display_name", "model", "thinking", "color", "memory", "instructions"))


OWN = {"output_schema": "output_schema"}
"""Fields of ours that count in files of all tools."""


class ForeignTables(Struct, frozen=True):
    """What one tool calls things."""

    dialect: Dialect
    fields: Mapping[str, str]
    """Its field → ours."""
    ignored: Mapping[str, str]
    """Fields that restrict nothing and have no counterpart → why."""
    tools: Mapping[str, tuple[str, ...]]
    """Its tool, in lower case → ours; empty if there is none."""
    denied: Mapping[str, tuple[str, ...]] = {}
    """What a denial covers, where that is more."""
    models: Mapping[str, str] = {}
    """Its alias → a part of a model's name; empty for the caller's model."""


class ForeignFields(AgentFields):
    """The fields of a file of another tool."""

    def __init__(self, block: FrontmatterBlock, path: str, tables: ForeignTables) -> None:
        self.faults: list[str] = []
        self.tables = tables
        super().__init__(block, path, {**tables.fields, **OWN}, tables.ignored)
        for entry in block.entries:
            key = entry.key
            is_unknown = (
                key not in (*tables.fields, *OWN) and key not in tables.ignored and key not in self._written.values()
            )
            if is_unknown and _RESTRICTING.search(fold_key(key)) and not _is_switched_on(entry):
                self.block(key, "is a field that retinue does not know and that may restrict the agent", entry.line)

    def report(
        self,
        text: str,
        field: str = "",
        line: int | None = None,
        code: str = "field",
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        """Report a problem; a warning about a field is in the field's report only."""
        if severity == "error" or not (field and code in ("unknown-key", "unknown-tool", "field")):
            super().report(text, field, line, code, severity)
        elif field in self._written:
            self.note(self._written[field], "approximated", text)

    def _repeat(self, field: str, entry: FrontmatterField) -> None:
        if field in _FREE:
            super()._repeat(field, entry)
        else:
            self._written[field] = entry.key
            self.block(field, f"is given twice (first on line {self.lines[field]})", entry.line)

    def block(self, field: str, why: str, line: int | None = None) -> None:
        """Disable the agent because of a restriction that cannot be expressed."""
        key = self.name(field)
        line = self.lines.get(field) if line is None else line
        text = f"{show_place(self.path, line)}: {key}: {why}; the agent is disabled"
        self.note(key, "ignored", f"{why}; the agent is disabled")
        self.problems.append(Diagnostic(text, self.path, line, code="restriction", field=key))
        self.faults.append(text)
        self.is_disabled = True

    def block_value(self, field: str, expected: str) -> None:
        self.block(field, f"found {show(self.get(field), 60)}; expected {expected}")

    def _reject_limit(self, field: str, expected: str) -> None:
        self.block_value(field, expected)

    def approximate(self, field: str, how: str) -> None:
        self.note(self.name(field), "approximated", how)

    def drop(self, field: str, why: str) -> None:
        self.note(self.name(field), "ignored", why)

    def read_flag(self, field: str) -> bool:
        """A switch that restricts if it is true; an unclear value disables the agent."""
        value = self.get(field)
        if value is None or (isinstance(value, Scalar) and (value.is_null or value.text.lower() == "false")):
            return False
        if not (isinstance(value, Scalar) and value.text.lower() == "true"):
            self.block_value(field, "true or false")
        return True

    def read_mode(self, field: str, known: Iterable[str]) -> str | None:
        """One of the words that are known to restrict or not; any other value disables the agent."""
        value = self.get(field)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return None
        if isinstance(value, Scalar) and value.text in known:
            return value.text
        self.block_value(field, f"one of {', '.join(known)}")
        return None


def _is_switched_on(entry: FrontmatterField) -> bool:
    """Whether a field only says that the agent is enabled."""
    value = entry.value
    return fold_key(entry.key) == "enabled" and isinstance(value, Scalar) and value.text.lower() == "true"


def to_block(data: Mapping[str, Any], body: str, lines: Mapping[str, int]) -> FrontmatterBlock:
    """The fields of a TOML or JSON file in the form of frontmatter."""
    entries = tuple(
        FrontmatterField(key, to_value(item, lines.get(key, 1)), lines.get(key, 1)) for key, item in data.items()
    )
    return FrontmatterBlock(entries, body.strip(), 1)


def to_value(data: Any, line: int) -> Value:
    if isinstance(data, Mapping):
        return YamlTable({str(key): to_value(item, line) for key, item in data.items()}, line)
    if isinstance(data, list | tuple):
        return Items(tuple(to_value(item, line) for item in data), line)
    if isinstance(data, str):
        return Scalar(data, line, is_quoted=True)
    return Scalar("" if data is None else str(data).lower(), line)

"""Parse YAML 1.2 with PyYAML's event stream: no tags, no merge keys, bounded depth, a line for every value.

Built from events and not from PyYAML's objects, so that scalars are never converted, and the target of an alias is
shared, not copied.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.definitions.frontmatter import BlockError, FrontmatterField, Items, Scalar, Value, YamlTable

MAX_DEPTH = 16
MAX_NODES = 10_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_TEXT_TAGS = {"!", f"{_CORE}str"}
_SCALAR_TAGS = {None, *_TEXT_TAGS, *(f"{_CORE}{name}" for name in ("bool", "int", "float", "null"))}
_GROUP_TAGS = {None, "!", f"{_CORE}seq", f"{_CORE}map"}
# A description with a colon in it: the most common mistake that other programs accept and YAML does not.
_LOOSE_TEXT = late_pattern(r"(description|display_name)(: +)([^\s\"'\[\]{}|>&*!#%@`,?:-].*?)[ \t]*\Z")


def read_yaml(text: str, first: int) -> tuple[tuple[FrontmatterField, ...], tuple[Diagnostic, ...]]:
    """Parse a block that begins on line `first`; returns the fields and notes on repairs. Raises BlockError."""
    try:
        return _Builder(first).read(text), ()
    except BlockError:
        repaired, lines = _quote_loose(text, first)
        try:
            entries = _Builder(first).read(repaired) if lines else None
        except BlockError:
            entries = None
        if entries is None:
            raise
    notes = tuple(
        Diagnostic("the text contains a colon or a # and is read literally; put it in quotes", "", line, "warning")
        for line in lines
    )
    return entries, notes


def _quote_loose(text: str, first: int) -> tuple[str, list[int]]:
    lines: list[int] = []
    repaired = text.split("\n")
    for index, line in enumerate(repaired):
        found = _LOOSE_TEXT.match(line)
        follows = repaired[index + 1][:1] if index + 1 < len(repaired) else ""
        if found and ": " in found[3] + " " and follows not in (" ", "\t"):
            repaired[index] = f"{found[1]}{found[2]}'{found[3].replace(chr(39), chr(39) * 2)}'"
            lines.append(first + index)
    return "\n".join(repaired), lines


class _Builder:
    """Builds values from PyYAML events, at most MAX_DEPTH levels deep."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.anchors: dict[str, Value] = {}
        self.nodes = 0

    def read(self, text: str) -> tuple[FrontmatterField, ...]:
        try:
            return self._read_root(yaml.parse(text, Loader=_LOADER))
        except yaml.MarkedYAMLError as error:
            # For something that is never closed, report where it begins, not where the text ends.
            is_open = error.context_mark is not None and re.search("flow|quoted", error.context or "")
            mark = error.context_mark if is_open or error.problem_mark is None else error.problem_mark
            line = self.first + mark.line if mark is not None else None
            problem = error.problem or error.context or "unreadable"
            raise BlockError(f"not valid YAML: {problem}", line, "yaml") from None
        except yaml.YAMLError as error:
            position = getattr(error, "position", None)
            reason = str(getattr(error, "reason", "") or "a character that YAML does not allow")
            line = self.first + text.count("\n", 0, position) if isinstance(position, int) else None
            raise BlockError(f"not valid YAML: {reason}", line, "yaml") from None

    def _read_root(self, events: Iterator[Any]) -> tuple[FrontmatterField, ...]:
        entries: tuple[FrontmatterField, ...] = ()
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._fail(event, "more than one YAML document; expected one")
            elif isinstance(event, yaml.MappingStartEvent):
                self._check_tag(event, _GROUP_TAGS)
                entries = tuple(self._read_pairs(events, [event]))
            elif isinstance(event, yaml.ScalarEvent) and event.implicit[0] and not event.value:
                continue  # only comments
            elif isinstance(event, yaml.NodeEvent):
                kind = "a list" if isinstance(event, yaml.SequenceStartEvent) else "a text"
                raise self._fail(event, f"the frontmatter is {kind}; expected `key: value` lines")
        return entries

    def _read_pairs(self, events: Iterator[Any], path: list[Any]) -> Iterator[FrontmatterField]:
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                return
            key = self._read_key(event)
            line = self.first + event.start_mark.line
            yield FrontmatterField(key, self._read_value(next(events), events, path), line)

    def _read_key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._fail(event, "a key is not text; expected a field's name")
        if event.value == "<<" and event.implicit[0]:
            raise self._fail(event, "merge keys (<<) are not read; write the fields out")
        return self._read_scalar(event).text

    def _read_value(self, event: Any, events: Iterator[Any], path: list[Any]) -> Value:
        self.nodes += 1
        if len(path) > MAX_DEPTH or self.nodes > MAX_NODES:
            raise self._fail(event, f"nested deeper than {MAX_DEPTH} levels or longer than {MAX_NODES} values")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self._fail(event, f"the alias {quote('*' + str(event.anchor), 40)} refers to nothing before it")
            return self.anchors[event.anchor]
        value = self._read_node(event, events, path)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def _read_node(self, event: Any, events: Iterator[Any], path: list[Any]) -> Value:
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event)
        self._check_tag(event, _GROUP_TAGS)
        line = self.first + event.start_mark.line
        inside = [*path, event]
        if isinstance(event, yaml.MappingStartEvent):
            pairs = list(self._read_pairs(events, inside))
            counts = Counter(pair.key for pair in pairs)
            if len(counts) < len(pairs):
                raise self._fail(event, f"{quote(counts.most_common(1)[0][0], 60)} is given twice")
            return YamlTable({pair.key: pair.value for pair in pairs}, line)
        values: list[Value] = []
        for item in events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            values.append(self._read_value(item, events, inside))
        return Items(tuple(values), line)

    def _read_scalar(self, event: Any) -> Scalar:
        self._check_tag(event, _SCALAR_TAGS)
        is_quoted = event.tag in _TEXT_TAGS or (event.tag is None and not event.implicit[0])
        return Scalar(event.value, self.first + event.start_mark.line, is_quoted)

    def _check_tag(self, event: Any, accepted: set[str | None]) -> None:
        if event.tag not in accepted:
            raise self._fail(event, f"the tag {quote(event.tag, 60)} is refused; expected plain values")

    def _fail(self, event: Any, message: str) -> BlockError:
        return BlockError(message, self.first + event.start_mark.line, "yaml")

"""Read typed values from the fields of an agent file; a doubtful value gets the meaning with fewer rights. Pure.

A misspelt or foreign key that would limit an agent is read as the field it resembles, with a warning: a typo never
gives more rights. This file must not know which dialect has which fields.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

from retinue.core.amounts import is_amount, is_number
from retinue.core.definition import FieldReport, FieldStatus, Selection
from retinue.core.diagnostics import Diagnostic, suggest
from retinue.core.errors import UsageError, quote
from retinue.core.output_schema import MAX_CHARS, check_schema
from retinue.core.pattern import late_pattern
from retinue.core.receipt import to_commands
from retinue.definitions.frontmatter import FrontmatterBlock, FrontmatterField, Items, Scalar, Value, YamlTable

# Fields that restrict an agent: a typo must not disable them.
LIMITING = frozenset((
    "tools", "approved_tools", "allowed_tools", "disallowed_tools", "disabled", "readonly", "enabled", "isolated",
    "extensions", "exclude_extensions", "isolation", "max_turns", "max_tokens_total", "max_cost", "max_seconds",
    "allowed_subagents", "hooks", "output_schema", "verify",
))  # fmt: skip
# Names of these fields in other programs and dialects, folded.
_FOREIGN = {
    "approvedtools": "tools",
    "allowedtools": "tools",
    "deniedtools": "disallowed_tools",
    "excludedtools": "disallowed_tools",
    "blockedtools": "disallowed_tools",
    "maxsteps": "max_turns",
    "inheritextensions": "extensions",
}
# Words that resemble a limiting field but are another program's field.
_INNOCENT = frozenset(("extends", "tooltip"))
_NUMBER = late_pattern(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_TRUE = ("true", "True", "TRUE", "1")
_FALSE = ("false", "False", "FALSE", "0", "no", "off")


class AgentFields:
    """The fields of one file under their canonical names, and all problems with them."""

    def __init__(
        self, block: FrontmatterBlock, path: str, known: Mapping[str, str], meaningless: Mapping[str, str]
    ) -> None:
        self.path = path
        self.body = block.body
        self.problems: list[Diagnostic] = []
        self.is_refused = False
        self.is_disabled = False
        """A limit cannot be parsed, and the agent must not run without it."""
        self.lines: dict[str, int] = {}
        self._written: dict[str, str] = {}
        self._reports: dict[str, FieldReport] = {}
        self._values: dict[str, Value] = {}
        self._known = known
        for note in block.notes:
            self.report(note.message, line=note.line, code="yaml", severity="warning")
        for entry in block.entries:
            self._place(entry, meaningless)

    def _place(self, entry: FrontmatterField, meaningless: Mapping[str, str]) -> None:
        key = entry.key
        field = self._known.get(key)
        self.note(key, "kept", line=entry.line)
        if field is None:
            if key in meaningless:
                self.note(key, "ignored", meaningless[key])
                if meaningless[key]:
                    text = f"{quote(key, 60)} has no meaning here; {meaningless[key]}"
                    self.report(text, key, entry.line, "unknown-key", "warning")
                return
            field, hint = _match_key(key, tuple(self._known.items()))
            end = f"read as {quote(field)}, since it limits the agent" if field else "ignored"
            self.note(key, "approximated" if field else "ignored", f"unknown field{hint}" if field is None else end)
            self.report(f"unknown field {quote(key, 60)}{hint}: {end}", key, entry.line, "unknown-key", "warning")
            if field is None:
                return
        if field in self._values:
            self._repeat(field, entry)
        self._values[field] = entry.value
        self.lines[field] = entry.line
        self._written[field] = entry.key

    def _repeat(self, field: str, entry: FrontmatterField) -> None:
        twice = f"{quote(entry.key, 60)} is given twice (first on line {self.lines[field]})"
        if field in LIMITING or self._known.get(field, field) in LIMITING:
            self.is_refused = True
            self.report(f"{twice}; the agent is not loaded", field, entry.line, "duplicate-key")
        else:
            self.report(f"{twice}; the last one counts", field, entry.line, "duplicate-key", "warning")

    def note(self, key: str, status: FieldStatus, text: str = "", line: int | None = None) -> None:
        """Record what becomes of a field, by its name in the file; a worse status replaces a better one."""
        known = self._reports.get(key) or FieldReport(key, "kept", line=line)
        worst = max(known.status, status, key=get_args(FieldStatus).index)
        texts = dict.fromkeys(filter(None, (known.note, text)))
        self._reports[key] = FieldReport(key, worst, "; ".join(texts), known.line)

    def list_reports(self) -> tuple[FieldReport, ...]:
        return tuple(self._reports.values())

    def report(
        self,
        text: str,
        field: str = "",
        line: int | None = None,
        code: str = "field",
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        line = self.lines.get(field) if line is None else line
        place = show_place(self.path, line)
        if field in self._written:
            self.note(self._written[field], "ignored" if text.endswith("; ignored") else "approximated", text)
        self.problems.append(Diagnostic(f"{place}: {text}", self.path, line, severity, code, field))

    def name(self, field: str) -> str:
        """The field's name as written in the file."""
        return self._written.get(field, field)

    def has(self, field: str) -> bool:
        """Whether the file has the field, even without a value."""
        return field in self._values

    def get(self, field: str) -> Value | None:
        """The unparsed value; None if the field is absent."""
        return self._values.get(field)

    def reject(self, field: str, expected: str, instead: str = "ignored") -> None:
        """Report that a field's value is invalid, what is expected, and what happens instead."""
        value = show(self._values[field])
        self.report(f"{self.name(field)}: found {value}; expected {expected}; {instead}", field)

    def read_text(self, field: str) -> str | None:
        """A string; numbers and booleans count as strings, too."""
        value = self._values.get(field)
        if value is None:
            return None
        if isinstance(value, Scalar):
            return None if value.is_null else value.text.strip()
        self.reject(field, "a text")
        return None

    def read_choice(self, field: str, accepted: Sequence[str], instead: str = "ignored") -> str | None:
        """One of the accepted words; None if it is absent or anything else."""
        value = self._values.get(field)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return None
        if isinstance(value, Scalar) and value.text in accepted:
            return value.text
        hint = suggest(value.text, accepted) if isinstance(value, Scalar) else ""
        self.reject(field, f"one of {', '.join(accepted)}{hint}", instead)
        return None

    def read_switch(self, field: str, *, doubt: bool, absent: bool | None = None) -> bool | None:
        """True or False; `absent` without a value; any other value is reported and gives `doubt`."""
        value = self._values.get(field)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return absent
        if isinstance(value, Scalar) and value.text in _TRUE:
            return True
        if isinstance(value, Scalar) and value.text in _FALSE:
            return False
        self.reject(field, "true or false", f"taken as {str(doubt).lower()}")
        return doubt

    def read_count(self, field: str, *, least: int = 0) -> int | None:
        """A limit that is a whole number; a fraction is rounded down, any other value disables the agent."""
        expected = f"a whole number of at least {least}"
        number = self._read_number(field, expected)
        if number is None:
            return None
        # Rounding a fraction below 1 down would give 0, which means no limit.
        if not is_number(number, least) or 0 < number < 1:
            self._reject_limit(field, expected)
            return None
        if number != int(number):
            self.reject(field, "a whole number", f"taken as {int(number)}")
        return int(number)

    def read_amount(self, field: str, expected: str) -> float | None:
        """A limit above 0; any other value disables the agent."""
        number = self._read_number(field, expected)
        if number is not None and not is_amount(number):
            self._reject_limit(field, expected)
            return None
        return number

    def _read_number(self, field: str, expected: str) -> float | None:
        value = self._values.get(field)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return None
        if isinstance(value, Scalar) and _NUMBER.match(value.text.strip()):
            number = float(value.text)
            if math.isfinite(number):
                return number
        self._reject_limit(field, expected)
        return None

    def _reject_limit(self, field: str, expected: str) -> None:
        self.is_disabled = True
        self.reject(field, expected, "the agent is disabled")

    def read_words(self, field: str) -> tuple[str, ...] | None:
        """A list, or a text with commas. None, without a report, if it is neither; empty if the field is absent."""
        value = self._values.get(field)
        if value is None:
            return ()
        parts: Iterable[Value] = value.values if isinstance(value, Items) else (value,)
        words: list[str] = []
        for part in parts:
            if not isinstance(part, Scalar):
                return None
            if not isinstance(value, Items) and is_other_type(part):
                return None
            words.extend(word for text in part.text.split(",") if (word := text.strip()))
        return tuple(dict.fromkeys(words))

    def read_selection(self, field: str) -> Selection:
        """True for all, False for none, or a list of names."""
        value = self._values.get(field)
        if value is None:
            return True
        if isinstance(value, Scalar) and not value.is_quoted:
            if value.text in ("true", "True", "TRUE"):
                return True
            if value.text in ("false", "False", "FALSE"):
                return False
            if value.is_null or value.text.lower() in ("yes", "no", "on", "off") or is_other_type(value):
                self.reject(field, "true, false, none or a list", "taken as false")
                return False
        words = self.read_words(field)
        if words is None:
            self.reject(field, "true, false, none or a list of names", "taken as false")
            return False
        return False if words in ((), ("none",)) else words

    def read_objects(self, field: str) -> tuple[dict[str, Any], ...]:
        """A list of objects, or the same as JSON on one line; an empty object stands for an unreadable value."""
        value = self._values.get(field)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return ()
        plain = to_plain(value)
        if isinstance(plain, str):
            try:
                plain = json.loads(plain)
            except (ValueError, RecursionError):
                plain = None
        if isinstance(plain, list) and all(isinstance(item, dict) for item in plain):
            return tuple(plain)
        self.reject(field, "a list of objects", "every call is denied until this is fixed")
        return ({},)

    def read_schema(self) -> tuple[dict[str, Any] | None, str]:
        """The schema of the agent's results, or the file that has it; anything unusable disables the agent."""
        value = self._values.get("output_schema")
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return None, ""
        if isinstance(value, Scalar) and not value.text.lstrip().startswith("{"):
            return None, value.text.strip()
        try:
            schema = json.loads(value.text) if isinstance(value, Scalar) else to_data(value)
            return check_schema(schema), ""
        except (ValueError, RecursionError, UsageError) as error:
            self.is_disabled = True
            self.report(f"{self.name('output_schema')}: {error}; the agent is disabled", "output_schema")
            return None, ""

    def read_commands(self, field: str) -> tuple[str, ...]:
        """One shell command or a list of them; anything else disables the agent."""
        value = self._values.get(field)
        if value is None or (isinstance(value, Scalar) and value.is_null):
            return ()
        parts = value.values if isinstance(value, Items) else (value,)
        try:
            # Each as it is written: `true` is a command, too.
            given = [part.text if isinstance(part, Scalar) and not part.is_null else None for part in parts]
            return to_commands(given, self.name(field))
        except UsageError as error:
            self.is_disabled = True
            self.report(f"{error}; the agent is disabled", field)
            return ()


def show_place(path: str, line: int | None) -> str:
    """`path:line` for the start of a message, always on one line."""
    shown = path if path.isprintable() else ascii(path)[1:-1]
    return shown if line is None else f"{shown}:{line}"


def is_other_type(value: Scalar) -> bool:
    """Whether an unquoted scalar is a number or a boolean."""
    plain = value.text.strip()
    return not value.is_quoted and (plain.lower() in ("true", "false") or _NUMBER.match(plain) is not None)


def show(value: Value | None, limit: int = 80) -> str:
    if isinstance(value, Scalar):
        return "nothing" if value.is_null else quote(value.text, limit)
    return "an object" if isinstance(value, YamlTable) else "a list"


def to_plain(value: Value, depth: int = 0) -> Any:
    """Convert a value to Python objects, for fields that carry data. Bounded, since aliases may repeat a part often."""
    if isinstance(value, Scalar):
        if value.is_quoted:
            return value.text
        if value.is_null:
            return None
        if value.text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return value.text.lower() == "true"
        if _NUMBER.match(value.text):
            return int(value.text) if re.fullmatch(r"[-+]?[0-9]{1,18}", value.text) else float(value.text)
        return value.text
    if depth >= 5:
        return None
    if isinstance(value, Items):
        # A shortened list would mean something else; a text is refused wherever a list is expected.
        is_long = len(value.values) > 100
        return "a list of more than 100" if is_long else [to_plain(item, depth + 1) for item in value.values]
    return {key: to_plain(item, depth + 1) for key, item in list(value.values.items())[:100]}


def to_data(value: Value) -> Any:
    """Convert a value to Python objects without losing anything. Raises ValueError if it is too large."""
    left = MAX_CHARS

    def convert(part: Value) -> Any:
        nonlocal left
        left -= 1
        if left < 0:  # aliases may repeat a part often
            raise ValueError(f"has more than {MAX_CHARS} values")
        if isinstance(part, Scalar):
            return to_plain(part)
        if isinstance(part, Items):
            return [convert(each) for each in part.values]
        return {key: convert(each) for key, each in part.values.items()}

    return convert(value)


def fold_key(key: str) -> str:
    """A key without case, `_` and `-`, which people write differently."""
    return key.lower().replace("_", "").replace("-", "")


@lru_cache(maxsize=1024)
def _match_key(key: str, known: tuple[tuple[str, str], ...]) -> tuple[str | None, str]:
    """The limiting field that an unknown key stands for, and a hint at the closest field."""
    folded = fold_key(key)
    names = dict(known)
    limiting = {fold_key(name): field for pair in known for name in pair if (field := pair[1]) in LIMITING}
    fields = set(limiting.values())
    if folded in limiting:
        return limiting[folded], ""
    if _FOREIGN.get(folded) in fields:
        return _FOREIGN[folded], ""
    if key.lower() not in _INNOCENT and (found := find_close(folded, limiting, 0.8)):
        return limiting[found], ""
    same = next((name for name in names if fold_key(name) == folded), None)
    return None, f" (did you mean {quote(same)}?)" if same else suggest(key, names)


def find_close(word: str, known: Collection[str], cutoff: float) -> str | None:
    from difflib import get_close_matches  # slow import, needed only after a mistake

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)

"""Parse the frontmatter of an agent file: YAML 1.2 in which every scalar keeps its text and its line. Pure.

This file must not know what fields mean: the reader of a field interprets its text. Most files are plain `key: value`
lines and are parsed here; for the rest PyYAML is imported on first use.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.pattern import late_pattern

MAX_BLOCK_CHARS = 64 * 1024
Fences: TypeAlias = Literal["pi", "lines"]
"""`pi`: closed by the first newline followed by `---`, whatever comes after it. `lines`: by a line that is just
`---`."""


class Scalar(Struct, frozen=True, gc=False):
    """A text, number, boolean or null: the reader of the field decides which."""

    text: str
    line: int
    is_quoted: bool = False
    """Quotes, a block or a tag mark it as text, whatever it looks like."""

    @property
    def is_null(self) -> bool:
        return not self.is_quoted and self.text in ("", "~", "null", "Null", "NULL")


class Items(Struct, frozen=True):
    values: "tuple[Value, ...]"
    line: int


class YamlTable(Struct, frozen=True):
    values: "dict[str, Value]"
    line: int


Value: TypeAlias = Scalar | Items | YamlTable


class FrontmatterField(Struct, frozen=True):
    key: str
    value: Value
    line: int


class FrontmatterBlock(Struct, frozen=True):
    """A parsed file; lines count from the top of the file."""

    entries: tuple[FrontmatterField, ...]
    """In file order; a repeated key appears twice."""
    body: str
    body_line: int
    notes: tuple[Diagnostic, ...] = ()
    """What was repaired to parse it."""


class BlockError(Exception):
    """There is no frontmatter, or it cannot be parsed."""

    def __init__(self, message: str, line: int | None, code: str) -> None:
        super().__init__(message)
        self.line = line
        self.code = code


def parse_block(text: str, fences: Fences = "pi") -> FrontmatterBlock:
    """Parse the fields and the body of a file. Raises BlockError."""
    yaml, line, body, body_line = split_fences(text, fences)
    if len(yaml) > MAX_BLOCK_CHARS:
        limit = f"{len(yaml)} characters of frontmatter; expected at most {MAX_BLOCK_CHARS}"
        raise BlockError(limit, line, "too-large")
    notes: tuple[Diagnostic, ...] = ()
    entries = _read_plain(yaml, line)
    if entries is None:
        from retinue.definitions.yaml import read_yaml  # slow import, needed by few files

        entries, notes = read_yaml(yaml, line)
    return FrontmatterBlock(entries, body, body_line, notes)


def split_fences(text: str, fences: Fences = "pi") -> tuple[str, int, str, int]:
    """The text between and after the fences, each with its first line. Raises BlockError if there are none."""
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    start = len(text) - len(text.lstrip()) if fences == "pi" else 0
    if not text.strip():
        raise BlockError("the file is empty; expected frontmatter between two lines of ---", 1, "no-frontmatter")
    opening = _find_opening(text, start)
    # pi searches for the newline after the opening dashes, so an empty block does not count as one.
    closing = text.find("\n---", opening) if fences == "pi" else _find_line(text, opening)
    if closing < 0:
        first = text.count("\n", 0, start) + 1
        raise BlockError("the frontmatter is never closed; expected a second line of ---", first, "unclosed")
    after = closing + 4
    rest = text[after:]
    body = rest.strip()
    skipped = len(rest) - len(rest.lstrip()) if body else 0
    first, body_line = (text.count("\n", 0, at) + 1 for at in (opening, after + skipped))
    return text[opening:closing], first, body, body_line


def _find_opening(text: str, start: int) -> int:
    end = text.find("\n", start)
    fence = text[start:] if end < 0 else text[start:end]
    if fence.rstrip() != "---":
        found = f"begins with {quote(fence, 40)}" if fence else "begins with an empty line"
        raise BlockError(f"no frontmatter: the file {found}; expected a line of ---", 1, "no-frontmatter")
    if end < 0:
        raise BlockError("the frontmatter is never closed; expected a second line of ---", 1, "unclosed")
    if re.match(r"---[ \t]*(\n|\Z)", text[end + 1 :]):
        raise BlockError("the frontmatter is empty; expected at least a description", 1, "no-frontmatter")
    return end + 1


def _find_line(text: str, opening: int) -> int:
    found = re.compile(r"\n---[ \t]*(?=\n|\Z)").search(text, opening)
    return found.start() if found else -1


# One line of the subset that needs no YAML parser. It must be parsed as YAML would; a test compares the two.
_LINE = late_pattern(r"([A-Za-z_][A-Za-z0-9_-]*):(?: +(.*?))? *\Z")
_ODD = late_pattern("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PLAIN = late_pattern(r"[A-Za-z0-9_/.(~][^\n]*\Z")
_QUOTED = late_pattern(r"\"([^\"\\]*)\"\Z|'([^']*)'\Z")
_FLOW = late_pattern(r"\[([A-Za-z0-9_/., \"-]*)\]\Z")
_FLOW_ITEM = late_pattern(r"\"([A-Za-z0-9_/. -]*)\"\Z|([A-Za-z0-9_/.][A-Za-z0-9_/. -]*)\Z")


def _read_plain(yaml: str, first: int) -> tuple[FrontmatterField, ...] | None:
    entries: list[FrontmatterField] = []
    if _ODD.search(yaml.replace("\n", "")):
        return None
    lines = yaml.split("\n")
    for line, text in enumerate(lines, first):
        if not text or text[0] == "#":
            continue
        found = _LINE.match(text)
        if found is None:
            return None
        key, written = found.groups()
        value = _read_value(written, line) if written else _read_nothing(lines, line - first, line)
        if value is None:
            return None
        entries.append(FrontmatterField(key, value, line))
    return tuple(entries)


def _read_nothing(lines: list[str], index: int, line: int) -> Scalar | None:
    # An empty value is null only if no list or object follows.
    following = next((text for text in lines[index + 1 :] if text and text[0] != "#"), "")
    return None if following[:1] in (" ", "-", "?") else Scalar("", line)


def _read_value(written: str, line: int) -> Value | None:
    if _PLAIN.match(written):
        doubtful = ": " in written or " #" in written or written[-1] == ":"
        return None if doubtful else Scalar(written, line)
    if quoted := _QUOTED.match(written):
        return Scalar(quoted[1] if quoted[1] is not None else quoted[2], line, is_quoted=True)
    flow = _FLOW.match(written)
    if flow is None:
        return None
    items: list[Value] = []
    for part in flow[1].split(",") if flow[1].strip() else []:
        item = _FLOW_ITEM.match(part.strip(" "))
        if item is None:
            return None
        items.append(Scalar(item[2] if item[1] is None else item[1], line, is_quoted=item[1] is not None))
    return Items(tuple(items), line)

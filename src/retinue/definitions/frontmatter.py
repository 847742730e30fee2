"""The block between the fences of an agent file: YAML 1.2 in which every scalar keeps its text and its line. Pure.

Must not know what a field means: whoever reads one decides what its text is. Files of plain `key: value` lines, which
are most, are read here; everything else goes to PyYAML, which is loaded for the first file that needs it.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote

MAX_BLOCK_CHARS = 64 * 1024
Fences: TypeAlias = Literal["pi", "lines"]
"""`pi`: the first newline followed by `---` closes, whatever comes after it. `lines`: a line that is just `---`."""


class Scalar(Struct, frozen=True, gc=False):
    """A text, a number, a boolean or nothing: the reader of the field decides which."""

    text: str
    line: int
    is_quoted: bool = False
    """Quotes, a block or a tag say that it is text, whatever it looks like."""

    @property
    def is_null(self) -> bool:
        return not self.is_quoted and self.text in ("", "~", "null", "Null", "NULL")


class Items(Struct, frozen=True):
    """A list."""

    values: "tuple[Value, ...]"
    line: int


class YamlTable(Struct, frozen=True):
    """An object."""

    values: "dict[str, Value]"
    line: int


Value: TypeAlias = Scalar | Items | YamlTable


class FrontmatterField(Struct, frozen=True):
    """One field of the block."""

    key: str
    value: Value
    line: int


class FrontmatterBlock(Struct, frozen=True):
    """A file taken apart; lines count from the top of the file."""

    entries: tuple[FrontmatterField, ...]
    """In the order of the file; a key given twice is there twice."""
    body: str
    body_line: int
    notes: tuple[Diagnostic, ...] = ()
    """What was mended to read it."""


class FencePositions(Struct, frozen=True):
    """Where the fences are, before anything between them is read."""

    yaml: str
    yaml_line: int
    body: str
    body_line: int


class BlockError(Exception):
    """Raised when there is no block, or none that can be read; carries what to say about it."""

    def __init__(self, message: str, line: int | None, code: str) -> None:
        super().__init__(message)
        self.line = line
        self.code = code


def parse_block(text: str, fences: Fences = "pi") -> FrontmatterBlock:
    """The fields and the body of a file. Raises BlockError."""
    fenced = split_fences(text, fences)
    if len(fenced.yaml) > MAX_BLOCK_CHARS:
        limit = f"{len(fenced.yaml)} characters of frontmatter; expected at most {MAX_BLOCK_CHARS}"
        raise BlockError(limit, fenced.yaml_line, "too-large")
    notes: tuple[Diagnostic, ...] = ()
    entries = _read_plain(fenced.yaml, fenced.yaml_line)
    if entries is None:
        from retinue.definitions.yaml import read_yaml  # only files that need it pay for PyYAML

        entries, notes = read_yaml(fenced.yaml, fenced.yaml_line)
    return FrontmatterBlock(entries, fenced.body, fenced.body_line, notes)


def split_fences(text: str, fences: Fences = "pi") -> FencePositions:
    """The text between the fences and the text after them. Raises BlockError when there are none."""
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    start = len(text) - len(text.lstrip()) if fences == "pi" else 0
    if not text.strip():
        raise BlockError("the file is empty; expected frontmatter between two lines of ---", 1, "no-frontmatter")
    opening = _find_opening(text, start)
    # pi looks for the newline from behind the opening dashes, so an empty block is none.
    closing = text.find("\n---", opening) if fences == "pi" else _find_line(text, opening)
    if closing < 0:
        first = text.count("\n", 0, start) + 1
        raise BlockError("the frontmatter is never closed; expected a second line of ---", first, "unclosed")
    after = closing + 4
    rest = text[after:]
    body = rest.strip()
    skipped = len(rest) - len(rest.lstrip()) if body else 0
    return FencePositions(
        yaml=text[opening:closing],
        yaml_line=text.count("\n", 0, opening) + 1,
        body=body,
        body_line=text.count("\n", 0, after + skipped) + 1,
    )


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


# One line of the subset that needs no YAML parser. It must read as YAML reads it; a test compares the two.
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?: +(.*?))? *\Z")
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[A-Za-z0-9_/.(~][^\n]*\Z")
_QUOTED = re.compile(r"\"([^\"\\]*)\"\Z|'([^']*)'\Z")
_FLOW = re.compile(r"\[([A-Za-z0-9_/., \"-]*)\]\Z")
_FLOW_ITEM = re.compile(r"\"([A-Za-z0-9_/. -]*)\"\Z|([A-Za-z0-9_/.][A-Za-z0-9_/. -]*)\Z")


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
    # Nothing after the colon is null only when no list or object follows.
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

"""What all dialects share: opening a file, checking the agent's name, reading its body. Pure.

This file must not know any dialect's fields.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePath
from typing import TypeVar

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.definitions.fields import AgentFields, show_place
from retinue.definitions.frontmatter import BlockError, Fences, FrontmatterBlock, parse_block

Fields = TypeVar("Fields", bound=AgentFields)
MAX_CHARS = 128
_DEVICES = (f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))
RESERVED = frozenset(("main", "all", "none", ".", "..", "con", "prn", "aux", "nul", *_DEVICES))
"""Words with a special meaning, here or as file names on some systems."""
EXPECTED = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
_SAFE = late_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?\Z")
# Letters of other scripts that look like Latin ones, and digits that look like letters.
_LOOKS = str.maketrans("аеорсухіјѕһԁԛԝвкмнтгοανρτυικηχγϲ01", "aeopcyxijshdqwbkmhtroavptuiknxycol")


def normalize_name(name: str) -> str:
    """The Unicode normal form (NFC) of a name."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def find_fault(name: str) -> str:
    """Why this cannot be an agent's name, and what can; empty if it is valid."""
    if not name:
        return f"is empty; expected {EXPECTED}"
    if len(name) > MAX_CHARS:
        return f"is {len(name)} characters long; expected at most {MAX_CHARS}"
    if name.lower().split(".")[0] in RESERVED or name in RESERVED:
        return "is a reserved word; choose another"
    if _SAFE.match(name):
        return ""
    if name != normalize_name(name):
        return "is not in Unicode normalization form NFC; use ASCII letters"
    first, last = name[0], name[-1]
    inside_ok = all(char in "._-" or char.isalnum() or unicodedata.category(char) in ("Mn", "Mc") for char in name)
    if inside_ok and first.isalnum() and last != ".":
        return ""
    return f"is not a valid name; expected {EXPECTED}"


@lru_cache(maxsize=4096)  # every requested run is looked up among all agents, several times
def fold_name(name: str) -> str:
    """The form in which two names are equal if they mean the same agent: everything but case."""
    return normalize_name(name).casefold()


def find_skeleton(name: str) -> str:
    """The form in which two names are equal if they look the same to a person."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_LOOKS).replace("l", "i")


def suggest_name(text: str) -> str:
    """A valid name similar to this text, or an empty string."""
    slug = re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:MAX_CHARS]
    return slug if slug and not find_fault(slug) else ""


LONG_BODY_CHARS = 100_000
# Invisible and direction-changing characters, except the joiners that scripts and emoji need.
_HIDDEN = late_pattern("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")

# A title instead of a name: harmless, since the file's own name is used.
_SPACED = late_pattern(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,126}[A-Za-z0-9]\Z")


def open_document(
    text: str, path: str, fences: Fences, read: Callable[[FrontmatterBlock], Fields]
) -> tuple[Fields | None, list[Diagnostic]]:
    """Parse a file and `read` its fields; None, with the reason, if that fails."""
    try:
        block = parse_block(text, fences)
    except BlockError as error:
        text = f"{show_place(path, error.line)}: {error}"
        return None, [Diagnostic(text, path, error.line, code=error.code)]
    fields = read(block)
    find_hidden(fields, block)
    return fields, fields.problems


def find_hidden(fields: AgentFields, block: FrontmatterBlock) -> None:
    """Report invisible characters in the instructions, and their length."""
    body, line = block.body, block.body_line
    if found := _HIDDEN.search(body):
        at = line + body.count("\n", 0, found.start())
        text = f"the instructions have invisible characters ({ascii(found[0])[1:-1]})"
        fields.report(text, "", at, "hidden-characters", "warning")
    if len(body) > LONG_BODY_CHARS:
        about = f"the instructions are {len(body)} characters long and may not fit a model's context"
        fields.report(about, "", line, "long-body", "warning")


def read_name(fields: AgentFields, *, stem_counts: bool) -> str | None:
    """The agent's name: `name`, or the file's stem if `stem_counts`; None, with a report, if there is none."""
    given = fields.read_text("name")
    name = normalize_name(given or "")
    if not name and stem_counts:
        name = normalize_name(PurePath(fields.path).stem)
        fault = find_fault(name)
        if fault:
            fields.report(f"the file's name {quote(name, 60)} {fault}; set `name` in the file", "name", 1, "name")
            return None
        return name
    if not name:
        found = "`name` is blank" if fields.has("name") else "`name` is missing"
        fields.report(f"{found}; the file is skipped", "name", fields.lines.get("name", 1), "name")
        return None
    fault = find_fault(name)
    if not fault:
        return name
    stem = normalize_name(PurePath(fields.path).stem)
    if stem_counts and " " in name and _SPACED.match(name) and not find_fault(stem):
        text = f"name: {quote(name)} has spaces; the agent is called {quote(stem)}, as its file"
        fields.report(text, "name", None, "name", "warning")
        return stem
    slug = suggest_name(name)
    hint = f" (such as {quote(slug)})" if slug else ""
    fields.report(f"name: {quote(name)} {fault}{hint}; the file is skipped", "name", None, "name")
    return None


def read_description(fields: AgentFields) -> str:
    text = " ".join((fields.read_text("description") or "").split())
    if _HIDDEN.search(text) or not text.isprintable():
        fields.report("description: has invisible characters", "description", None, "hidden-characters", "warning")
    return text


def choose_prompt(fields: AgentFields, name: str, description: str) -> str:
    """The body, or a reported substitute if it is empty."""
    if fields.body:
        return fields.body
    called = "its description" if description else "a sentence with its name"
    fields.report(f"the file has no instructions; {called} is used", "", 1, "empty-body", "warning")
    return description or f"You are the agent {name}."

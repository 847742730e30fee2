"""Parse tool results into facts: matching lines, outlines, excerpts, file lists and errors.

This file must not know which facts matter.
"""

from bisect import bisect_right
from collections.abc import Iterable, MutableMapping
from typing import Any

from msgspec import Struct, field

from retinue.core.pattern import late_pattern
from retinue.models.offline.actions import Action, Find, Read, SearchAction, to_action
from retinue.models.offline.languages import OUTLINE, CodeLine, read_line
from retinue.models.offline.transcript import ToolExchange

_MATCH = late_pattern(r"^(.{1,400}?):(\d+): ?(.*)$")
_NOTICE = late_pattern(r"^\[.*(?:limit|more lines|truncated|Showing lines|Use offset).*\]$")
_FLAT = frozenset(("constant", "field", "variable", "declaration", "export"))
_CONTAINERS = frozenset(("class", "interface", "impl", "type", "module"))
_NOTHING = ("No matches found", "No files found", "(empty directory)")


class Hit(Struct, frozen=True):
    """One line that a search found."""

    path: str
    line: int
    text: str
    about: CodeLine
    indent: int = 0
    """Columns before the first character."""

    @classmethod
    def of(cls, path: str, line: int, text: str) -> "Hit":
        expanded = text.expandtabs(4)
        return cls(path, line, text, read_line(path, text), len(expanded) - len(expanded.lstrip()))


class Excerpt(Struct, frozen=True):
    path: str
    first: int
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    def line(self, number: int) -> str:
        """The text of a line; empty outside the excerpt."""
        index = number - self.first
        return self.lines[index] if 0 <= index < len(self.lines) else ""


class Findings(Struct):
    """All facts about one question so far."""

    actions: dict[Action, None] = field(default_factory=dict)
    """What was done, in order."""
    hits: dict[tuple[str, int], Hit] = field(default_factory=dict)
    outlines: dict[str, list[Hit]] = field(default_factory=dict)
    excerpts: list[Excerpt] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    is_partial: bool = False
    """The file list was cut off."""
    top: list[str] = field(default_factory=list)
    """Files and folders at the top; a folder ends with a slash."""
    errors: list[str] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    """Patterns with more matches than shown."""
    _defined: dict[str, list[Hit]] = field(default_factory=dict)

    def count(self, kind: type[Action]) -> int:
        return sum(isinstance(action, kind) for action in self.actions)

    def excerpt_at(self, path: str, line: int) -> Excerpt | None:
        """The longest excerpt that contains a line."""
        held = [each for each in self.excerpts if each.path == path and each.first <= line <= each.last]
        return max(held, key=lambda each: len(each.lines), default=None)

    def whole(self, path: str) -> Excerpt | None:
        """The excerpt of a file from its first line."""
        return next((each for each in self.excerpts if each.path == path and each.first == 1), None)

    def enclosing(self, hit: Hit) -> Hit | None:
        """The function or class that contains a line; None if the outline of its file is unknown."""
        outline = self.outlines.get(hit.path, [])
        for candidate in reversed(outline[: bisect_right(outline, hit.line, key=lambda each: each.line)]):
            if candidate.line == hit.line and not candidate.about.is_definition:
                continue
            if candidate.indent == 0 < hit.indent and candidate.about.what in _FLAT:
                # A top-level statement lies between the function above and this line.
                return None
            if candidate.about.role == "end" and hit.indent == 0:
                return None
            if candidate.about.role == "end" or candidate.about.what in _FLAT:
                continue
            if candidate.line == hit.line or candidate.indent < hit.indent:
                return candidate
        return None

    def container(self, hit: Hit) -> Hit | None:
        """The class that a method belongs to, if known."""
        known = self.outlines.get(hit.path) or self._defined.get(hit.path, [])
        for candidate in reversed(known[: bisect_right(known, hit.line - 1, key=lambda each: each.line)]):
            if candidate.indent < hit.indent and candidate.about.what in _CONTAINERS:
                return candidate
        return None

    def end_of(self, hit: Hit) -> int:
        """The last line of a definition according to the outline; a guess without one."""
        if hit.path not in self.outlines:
            return hit.line + 40
        outline = self.outlines[hit.path]
        for other in outline[bisect_right(outline, hit.line, key=lambda each: each.line) :]:
            if other.indent <= hit.indent:
                return other.line - (other.about.role != "end")
        return max(hit.line + 80, outline[-1].line + 40) if outline else hit.line + 80


def collect_findings(exchanges: Iterable[ToolExchange], memo: MutableMapping[Any, Any]) -> Findings:
    """Combine the results of all calls; the memo caches parsed results between turns."""
    findings = Findings()
    for exchange in exchanges:
        action = to_action(exchange.call)
        if action is None:
            continue
        findings.actions[action] = None
        if exchange.is_error:
            first = next(iter(exchange.text.strip().splitlines()), "")
            findings.errors.append(f"{exchange.call.name}: {first[:160]}")
        elif isinstance(action, SearchAction):
            _add_search(findings, action, exchange, memo)
        elif isinstance(action, Read):
            _add_read(findings, action, exchange.text)
        elif isinstance(action, Find):
            _add_files(findings, action, exchange.text)
        else:
            findings.top = [line for line in _content(exchange.text) if line]
    for hit in findings.hits.values():
        if hit.about.role in ("definition", "heading"):
            findings._defined.setdefault(hit.path, []).append(hit)
    for hits in findings._defined.values():
        hits.sort(key=lambda hit: hit.line)
    return findings


def _add_search(
    findings: Findings, action: SearchAction, exchange: ToolExchange, memo: MutableMapping[Any, Any]
) -> None:
    key = ("offline", exchange.call.id, len(exchange.text))
    parsed = memo.get(key)
    if parsed is None:
        parsed = memo[key] = parse_matches(exchange.text, action.path)
    hits, is_cut = parsed
    if is_cut or len(hits) >= action.limit:
        findings.cut.add(action.pattern)
    if action.pattern == OUTLINE:
        findings.outlines[action.path] = [hit for hit in hits if hit.about.role in ("definition", "heading", "end")]
    for hit in hits:
        findings.hits.setdefault((hit.path, hit.line), hit)


def parse_matches(text: str, path: str) -> tuple[list[Hit], bool]:
    """The hits of a search result, and whether it was cut off."""
    hits: list[Hit] = []
    is_cut = False
    # A search in one file returns only its name.
    name = path.rsplit("/", 1)[-1]
    is_file = "." in name.lstrip(".") or name.lower() in ("makefile", "dockerfile")
    # A search in a folder returns paths relative to it.
    prefix = "" if path == "." else path.rstrip("/") + "/"
    for raw in text.splitlines():
        found = _MATCH.match(raw)
        if found:
            if len(raw) > 420 or "__pyx" in raw or "__Pyx" in raw:
                # Minified or generated.
                continue
            where = path if is_file else prefix + _normalise(found.group(1))
            hits.append(Hit.of(where, int(found.group(2)), found.group(3)))
        elif _NOTICE.match(raw):
            is_cut = True
    return hits, is_cut


def _add_read(findings: Findings, action: Read, text: str) -> None:
    lines = text.split("\n")
    if lines and _NOTICE.match(lines[-1]):
        lines = lines[:-2]
    findings.excerpts.append(Excerpt(_normalise(action.path), max(1, action.offset), tuple(lines)))


def _add_files(findings: Findings, action: Find, text: str) -> None:
    prefix = "" if action.path == "." else action.path.rstrip("/") + "/"
    found = [prefix + _normalise(line) for line in _content(text) if line and not line.endswith("/")]
    known = set(findings.files)
    findings.files.extend(path for path in found if path not in known and not path.startswith(".git/"))
    if action.pattern == "*" and action.path == "." and (len(found) >= action.limit or "limit reached" in text[-200:]):
        findings.is_partial = True


def _content(text: str) -> list[str]:
    if text.startswith(_NOTHING):
        return []
    return [line.rstrip() for line in text.splitlines() if not _NOTICE.match(line)]


def _normalise(path: str) -> str:
    return path.removeprefix("./")

"""Applies a list of exact replacements to a text, or explains why one does not match and what is similar. Pure.

Text is matched exactly, else with typography and trailing spaces ignored. Positions always refer to the unmodified
text, so everything outside the replaced pieces stays unchanged.
"""

import difflib
import re
import unicodedata
from bisect import bisect_left
from itertools import pairwise

from msgspec import Struct

from retinue.core.errors import ToolRetry, quote
from retinue.core.pattern import late_pattern

_FOLDED = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
}
_TRAILING = late_pattern(r"[^\S\n]+(?=\n|\Z)")
MAX_SHOWN_PLACES = 20
_LINES_SCANNED = 20_000
_LINES_SHOWN = 12
_CHARS_COMPARED = 400
_CHARS_SHOWN = 200
_CANDIDATES = 5
_LEAST_SIMILAR = 0.5
_FOLDED_CHARS = 2_000_000


class TextSpan(Struct, frozen=True):
    start: int
    end: int


class LineView:
    """A text with CRLF read as LF, which maps positions back to the original."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.text = original.replace("\r\n", "\n") if "\r\n" in original else original
        # Positions in `text` of line ends that were CRLF; each one before a position shifts it by one.
        self._pairs: list[int] = []
        if self.text is not original:
            self._pairs = [found.start() - nth for nth, found in enumerate(re.finditer("\r\n", original))]

    def to_original(self, span: TextSpan) -> TextSpan:
        return TextSpan(self._shift(span.start), self._shift(span.end))

    def _shift(self, at: int) -> int:
        return at + bisect_left(self._pairs, at)

    def line_end_near(self, span: TextSpan) -> str:
        """Return the line ending used in a range, else after it, else in the file."""
        if not self._pairs:
            return "\n"
        at = self.text.find("\n", span.start)
        if at < 0:
            at = self.text.rfind("\n")
        index = bisect_left(self._pairs, at)
        return "\r\n" if index < len(self._pairs) and self._pairs[index] == at else "\n"


class FoldedView:
    """A text with plain quotes, dashes and spaces and no trailing blanks, which maps positions back to the source."""

    def __init__(self, text: str) -> None:
        self._source = text
        pieces: list[str] = []
        starts: list[int] = []
        at = 0
        for found in _TRAILING.finditer(text):
            self._fold(at, found.start(), pieces, starts)
            at = found.end()
        self._fold(at, len(text), pieces, starts)
        starts.append(len(text))
        self._starts = starts
        self.text = "".join(pieces)

    def _fold(self, start: int, end: int, pieces: list[str], starts: list[int]) -> None:
        run = self._source[start:end]
        if run.isascii():
            pieces.append(run)
            starts.extend(range(start, end))
            return
        for offset, character in enumerate(run, start):
            plain = _FOLDED.get(character) or unicodedata.normalize("NFKC", character)
            plain = _FOLDED.get(plain, plain)
            pieces.append(plain)
            starts.extend([offset] * len(plain))

    def to_source(self, span: TextSpan) -> TextSpan:
        """Map a range back to the source, including the trailing blanks that were removed at its end."""
        last = self._starts[span.end - 1]
        end = last + 1
        blanks = _TRAILING.match(self._source, end)
        return TextSpan(self._starts[span.start], blanks.end() if blanks else end)


def fold_text(text: str) -> str:
    return FoldedView(text).text


def find_spans(text: str, wanted: str) -> list[TextSpan]:
    """Return all occurrences, including overlapping ones."""
    spans = []
    at = text.find(wanted)
    while at >= 0:
        spans.append(TextSpan(at, at + len(wanted)))
        at = text.find(wanted, at + 1)
    return spans


def number_line(text: str, at: int) -> int:
    """Return the line of a position, counted from 1."""
    return text.count("\n", 0, at) + 1


def render_closest(text: str, wanted: str) -> str:
    """Show the most similar lines with their numbers and the difference; empty if nothing is similar."""
    lines = text.split("\n")[:_LINES_SCANNED]
    sought = wanted.strip("\n").split("\n")
    start, similarity = _find_closest(lines, sought)
    if similarity < _LEAST_SIMILAR:
        return ""
    count = min(len(sought), len(lines) - start)
    found = lines[start : start + count]
    where = f"line {start + 1}" if count == 1 else f"lines {start + 1}-{start + count}"
    if [line.split() for line in found] == [line.split() for line in sought]:
        head = f"Only the spaces differ from {where}:"
    else:
        head = f"The closest text is at {where}:"
    rows = [head]
    for number, (have, want) in enumerate(zip(found, sought, strict=False), start + 1):
        if len(rows) > _LINES_SHOWN:
            rows.append("  ...")
            break
        if have == want:
            rows.append(f"  {number} | {have[:_CHARS_SHOWN]}")
        else:
            rows.append(f"- oldText: {_show(want, have)}")
            rows.append(f"+ line {number}: {_show(have, want)}")
    return "\n".join(rows)


def _show(line: str, other: str) -> str:
    # Often only blanks differ; make them visible.
    shown = line[:_CHARS_SHOWN]
    return shown.replace("\t", "→").replace(" ", "·") if line.split() == other.split() else shown


def _find_closest(lines: list[str], sought: list[str]) -> tuple[int, float]:
    """Return the start of the most similar block, and its similarity."""
    key_at = next((index for index, line in enumerate(sought) if line.strip()), 0)
    key = sought[key_at].strip()[:_CHARS_COMPARED]
    words = set(key.split())
    scored = []
    for index, line in enumerate(lines):
        stripped = line.strip()[:_CHARS_COMPARED]
        if not stripped:
            continue
        if stripped == key:
            scored.append((1.0, index))
            continue
        others = set(stripped.split())
        shared = len(words & others) / max(1, len(words | others))
        prefix = 0.3 if key[:8] == stripped[:8] else 0.0
        if shared + prefix > 0.2:
            scored.append((min(0.99, shared + prefix), index))
    scored.sort(key=lambda pair: (-pair[0], pair[1]))
    best = (0, 0.0)
    for _, index in scored[:_CANDIDATES]:
        start = max(0, index - key_at)
        found = "\n".join(
            line.strip()[:_CHARS_COMPARED] for line in lines[start : start + min(len(sought), _LINES_SHOWN)]
        )
        want = "\n".join(line.strip()[:_CHARS_COMPARED] for line in sought[:_LINES_SHOWN])
        similarity = difflib.SequenceMatcher(None, found, want, autojunk=True).ratio()
        if similarity > best[1]:
            best = (start, similarity)
    return best


class Edit(Struct, frozen=True):
    old: str
    new: str


class TextChange(Struct, frozen=True):
    """A range of the original text and its replacement."""

    span: TextSpan
    new: str


class EditedText(Struct, frozen=True):
    """The new text and the changes that led to it."""

    text: str
    changes: list[TextChange]
    """In text order."""
    forgiven: list[int]
    """Indexes of edits that matched only with typography and trailing spaces ignored."""


def apply_edits(original: str, edits: list[Edit], path: str) -> EditedText:
    """Match every edit against the original and replace all at once. Raises ToolRetry if one does not match once."""
    view = LineView(original)
    folded: FoldedView | None = None
    found: list[tuple[int, TextSpan, str]] = []
    forgiven: list[int] = []
    for index, edit in enumerate(edits):
        name = "oldText" if len(edits) == 1 else f"edits[{index}].oldText"
        old, new = edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n")
        if not old:
            raise ToolRetry(f"{name} is empty: expected the text to replace. Use write to create a file.")
        if old == new:
            raise ToolRetry(f"{name} and its newText are the same: nothing to change in {quote(path, 200)}.")
        spans = find_spans(view.text, old)
        if not spans and len(view.text) <= _FOLDED_CHARS:
            folded = folded or FoldedView(view.text)
            plain = fold_text(old)
            spans = [folded.to_source(span) for span in find_spans(folded.text, plain)] if plain.strip() else []
            forgiven += [index] if len(spans) == 1 else []
        if len(spans) != 1:
            raise _explain_count(view.text, old, spans, name, path)
        found.append((index, spans[0], new))
    found.sort(key=lambda each: each[1].start)
    for (one, first, _), (two, second, _) in pairwise(found):
        if first.end > second.start:
            lines = f"{number_line(view.text, first.start)} and {number_line(view.text, second.start)}"
            raise ToolRetry(
                f"edits[{one}] and edits[{two}] overlap in {quote(path, 200)} (they begin at lines {lines}). "
                "Merge them into one edit."
            )
    changes = [
        TextChange(view.to_original(span), new.replace("\n", view.line_end_near(span)) if "\n" in new else new)
        for _, span, new in found
    ]
    text = _replace(original, changes)
    if text == original:
        raise ToolRetry(f"The edits leave {quote(path, 200)} as it is: nothing to change.")
    return EditedText(text, changes, forgiven)


def _replace(original: str, changes: list[TextChange]) -> str:
    pieces = []
    at = 0
    for change in changes:
        pieces += [original[at : change.span.start], change.new]
        at = change.span.end
    return "".join([*pieces, original[at:]])


def _explain_count(text: str, old: str, spans: list[TextSpan], name: str, path: str) -> ToolRetry:
    shown = quote(path, 200)
    if spans:
        numbers = [str(number_line(text, span.start)) for span in spans[:MAX_SHOWN_PLACES]]
        more = ", ..." if len(spans) > MAX_SHOWN_PLACES else ""
        return ToolRetry(
            f"{name} is found {len(spans)} times in {shown}, at lines {', '.join(numbers)}{more}. "
            "It must be unique: add the lines around the one you mean."
        )
    closest = render_closest(text, old)
    hint = f"\n{closest}" if closest else " Nothing in the file comes close: read it again."
    return ToolRetry(f"{name} is not in {shown}. It must match exactly, spaces and line ends included.{hint}")

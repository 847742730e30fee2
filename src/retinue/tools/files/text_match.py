"""Finds the places an edit names in a text: exactly, else with typography and trailing spaces forgiven; pure.

Positions are always those of the text as it is, so whatever an edit does not name stays untouched.
"""

import re
import unicodedata
from bisect import bisect_left

from msgspec import Struct

_FOLDED = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
}
_TRAILING = re.compile(r"[^\S\n]+(?=\n|\Z)")
MAX_SHOWN_PLACES = 20


class Span(Struct, frozen=True):
    """A place in a text."""

    start: int
    end: int


class LineView:
    """A text with CRLF read as LF, that still knows where everything was."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.text = original.replace("\r\n", "\n") if "\r\n" in original else original
        # Where, in `text`, each line end is that was CRLF: every one before a place moves it by one.
        self._pairs: list[int] = []
        if self.text is not original:
            self._pairs = [found.start() - nth for nth, found in enumerate(re.finditer("\r\n", original))]

    def to_original(self, span: Span) -> Span:
        """The same place in the original."""
        return Span(self._shift(span.start), self._shift(span.end))

    def _shift(self, at: int) -> int:
        return at + bisect_left(self._pairs, at)

    def line_end_near(self, span: Span) -> str:
        """The kind of line end used at a place: in it, else after it, else in the file."""
        if not self._pairs:
            return "\n"
        at = self.text.find("\n", span.start)
        if at < 0:
            at = self.text.rfind("\n")
        index = bisect_left(self._pairs, at)
        return "\r\n" if index < len(self._pairs) and self._pairs[index] == at else "\n"


class FoldedView:
    """A text with typographic quotes, dashes, spaces and trailing blanks made plain, and the way back."""

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

    def to_source(self, span: Span) -> Span:
        """The same place in the source; blanks that were dropped at its end belong to it."""
        last = self._starts[span.end - 1]
        end = last + 1
        blanks = _TRAILING.match(self._source, end)
        return Span(self._starts[span.start], blanks.end() if blanks else end)


def fold_text(text: str) -> str:
    """What FoldedView makes of a text."""
    return FoldedView(text).text


def find_spans(text: str, wanted: str) -> list[Span]:
    """Every place a text occurs, overlapping ones too."""
    spans = []
    at = text.find(wanted)
    while at >= 0:
        spans.append(Span(at, at + len(wanted)))
        at = text.find(wanted, at + 1)
    return spans


def number_line(text: str, at: int) -> int:
    """The line, from 1, a position is in."""
    return text.count("\n", 0, at) + 1

"""Works out what a list of edits makes of a text, or why they cannot be made; pure."""

from itertools import pairwise

from msgspec import Struct

from retinue.core.errors import ToolRetry, quote
from retinue.tools.files.closest import render_closest
from retinue.tools.files.text_match import (
    MAX_SHOWN_PLACES,
    FoldedView,
    LineView,
    Span,
    find_spans,
    fold_text,
    number_line,
)

_FOLDED_CHARS = 2_000_000


class Edit(Struct, frozen=True):
    """One replacement a model asks for."""

    old: str
    new: str


class Change(Struct, frozen=True):
    """One place of the original text and what it becomes."""

    span: Span
    new: str


class Edited(Struct, frozen=True):
    """The new text, and how it came about."""

    text: str
    changes: list[Change]
    """In the order of the text."""
    forgiven: list[int]
    """Edits that matched only with typography and trailing spaces forgiven."""


def apply_edits(original: str, edits: list[Edit], path: str) -> Edited:
    """Match every edit against the original and replace all at once. Raises ToolRetry saying what was found instead."""
    view = LineView(original)
    folded: FoldedView | None = None
    found: list[tuple[int, Span, str]] = []
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
        Change(view.to_original(span), new.replace("\n", view.line_end_near(span)) if "\n" in new else new)
        for _, span, new in found
    ]
    text = _replace(original, changes)
    if text == original:
        raise ToolRetry(f"The edits leave {quote(path, 200)} as it is: nothing to change.")
    return Edited(text, changes, forgiven)


def _replace(original: str, changes: list[Change]) -> str:
    pieces = []
    at = 0
    for change in changes:
        pieces += [original[at : change.span.start], change.new]
        at = change.span.end
    return "".join([*pieces, original[at:]])


def _explain_count(text: str, old: str, spans: list[Span], name: str, path: str) -> ToolRetry:
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

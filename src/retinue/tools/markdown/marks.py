"""Writes inline markup (bold, italic, strikethrough, code, links) and tables as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

SIGNS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~", "code": "`", "kbd": "`", "samp": "`"}


class _Mark(NamedTuple):
    name: str
    sign: str
    """The markdown sign; for a link, its target."""
    place: int


class Marks:
    """The open marks of one line."""

    def __init__(self, line: list[str], most: int) -> None:
        """`line` collects the pieces of the line; marks nested deeper than `most` are ignored."""
        self._line = line
        self._most = most
        self._open: list[_Mark] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, name: str) -> None:
        if len(self._open) < self._most:
            self._open.append(_Mark(name, SIGNS[name], len(self._line)))

    def begin_link(self, url: str) -> None:
        """Begin a link; a link inside a link is ignored."""
        marks = self._open
        if not marks or (len(marks) < self._most and all(mark.name != "a" for mark in marks)):
            marks.append(_Mark("a", url, len(self._line)))

    def end(self, name: str) -> None:
        """End a mark and all marks inside it."""
        marks = self._open
        # Nearly always it is the innermost mark, or there is none.
        if marks and (marks[-1].name == name or any(mark.name == name for mark in marks)):
            while self._write() != name:
                pass

    def end_all(self) -> None:
        while self._open:
            self._write()

    def _write(self) -> str:
        """Write the innermost mark around its text; return its name."""
        mark = self._open.pop()
        body = "".join(self._line[mark.place :])
        text = body.strip()
        if text and mark.sign:
            before, after = body[: len(body) - len(body.lstrip())], body[len(body.rstrip()) :]
            around = f"[{text}]({mark.sign})" if mark.name == "a" else f"{mark.sign}{text}{mark.sign}"
            self._line[mark.place :] = [f"{before and ' '}{around}{after and ' '}"]
        return mark.name


def render_table(rows: Sequence[Sequence[str]], *, max_cell: int = 0) -> str:
    """Render a table whose first row is the header; shorter rows are padded."""
    if not rows:
        return ""
    width = max(len(row) for row in rows)
    lines = [_render_row(row, width, max_cell) for row in rows]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def _render_row(row: Sequence[str], width: int, max_cell: int) -> str:
    cells = [clean_cell(cell, max_cell) for cell in row] + [""] * (width - len(row))
    return f"| {' | '.join(cells)} |"


def clean_cell(text: str, max_cell: int = 0) -> str:
    """Return a text as one line that fits in a table cell."""
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain if not max_cell or len(plain) <= max_cell else plain[: max_cell - 1] + "…"

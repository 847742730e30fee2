"""The completion popup above the editor. Only shows suggestions and keeps the highlight."""

from collections.abc import Sequence

from rich.text import Text
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from retinue.ui.completion import Suggestion
from retinue.ui.formats import clean_line

ROWS = 8


class CompletionPopup(Static):
    """A window of the suggestions around the highlighted row; hidden if there are none."""

    DEFAULT_CSS = """
    CompletionPopup { height: auto; max-height: 10; padding: 0 2; display: none; }
    CompletionPopup.-open { display: block; }
    """

    class Clicked(Message):
        """A row was clicked; it is highlighted."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.rows: list[Suggestion] = []
        self._lit: int | None = None
        self._first = 0

    @property
    def is_open(self) -> bool:
        return bool(self.rows)

    @property
    def lit(self) -> Suggestion | None:
        """The highlighted row."""
        return self.rows[self._lit] if self._lit is not None else None

    def show(self, rows: Sequence[Suggestion], *, is_lit: bool = True) -> None:
        """Show rows from the start; without `is_lit`, none is highlighted until the user moves."""
        if list(rows) != self.rows:
            self.rows, self._first = list(rows), 0
            self._lit = 0 if rows and is_lit else None
        self.set_class(bool(self.rows), "-open")
        self.redraw()

    def close(self) -> None:
        self.show(())

    def move(self, step: int) -> None:
        """Move the highlight; single steps wrap around."""
        if not self.rows:
            return
        last = len(self.rows) - 1
        if self._lit is None:
            self._lit = 0 if step > 0 else last
        elif abs(step) == 1:
            self._lit = (self._lit + step) % len(self.rows)
        else:
            self._lit = max(0, min(self._lit + step, last))
        self.redraw()

    def on_click(self, event: Click) -> None:
        at = self._first + event.y
        if event.y < ROWS and at < len(self.rows):
            self._lit = at
            self.post_message(self.Clicked())

    def on_mouse_scroll_down(self) -> None:
        self.move(1)

    def on_mouse_scroll_up(self) -> None:
        self.move(-1)

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        if not self.rows:
            return
        lit = self._lit or 0
        self._first = max(min(self._first, lit), lit - ROWS + 1, 0)
        shown = self.rows[self._first : self._first + ROWS]
        wide = max(len(row.label) for row in shown)
        width = max(8, self.size.width or 80)
        column = min(wide, max(8, width // 2))
        lines = [self._draw_row(at, row, column, width) for at, row in enumerate(shown, self._first)]
        if len(self.rows) > ROWS:
            lines.append(Text(f"  {lit + 1}/{len(self.rows)}", style="dim"))
        self.update(Text("\n").join(lines))

    def _draw_row(self, at: int, row: Suggestion, column: int, width: int) -> Text:
        is_lit = at == self._lit
        line = Text(no_wrap=True)
        accent = self.app.theme_variables.get("accent", "")
        line.append("❯ " if is_lit else "  ", style=accent)
        label = Text(clean_line(row.label, 200), style=f"bold {accent}" if is_lit else "")
        if label.cell_len > column:  # the end of a path is more informative than its start
            label = Text(f"…{label.plain[-(column - 1) :]}", style=label.style)
        line.append_text(label)
        if row.note:
            line.append(" " * max(2, column - label.cell_len + 2))
            line.append(clean_line(row.note, 200), style="dim")
        line.truncate(width, overflow="ellipsis")
        return line

"""A text to change, over the whole screen: for those who have set no editor of their own, and for long answers."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from retinue.ui.bindings import bind
from retinue.ui.formats import clean_line
from retinue.ui.screens.overlay import Overlay

_HINT = "ctrl+s done · esc back"


class TextPage(Overlay[str | None]):
    """Gives back the text, or None."""

    DEFAULT_CSS = """
    TextPage { align: center middle; background: $background 50%; }
    TextPage > #frame { width: 96%; height: 90%; border: round $accent; background: $background; padding: 0 1; }
    TextPage #title { height: auto; max-height: 3; text-style: bold; }
    TextPage TextArea { height: 1fr; border: none; background: $boost; }
    TextPage #hint { height: 1; color: $text-muted; }
    """
    BINDINGS = [
        bind("tui.select.cancel", "leave", is_first=True),
        bind("app.text.done", "send", is_first=True),
    ]

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._is_sure = False

    def compose(self) -> ComposeResult:
        """Title, text, hint."""
        with Vertical(id="frame"):
            yield Static(clean_line(self._title), id="title", markup=False)
            yield TextArea(self._text, id="text", tab_behavior="indent", show_line_numbers=False)
            yield Static(_HINT, id="hint", markup=False)

    def on_mount(self) -> None:
        """Write at once."""
        self.query_one(TextArea).focus()

    def on_text_area_changed(self) -> None:
        """What was written last is not thrown away by one key."""
        self._is_sure = False
        self.query_one("#hint", Static).update(_HINT)

    def action_send(self) -> None:
        """Done."""
        self.dismiss(self.query_one(TextArea).text)

    def action_leave(self) -> None:
        """Back without an answer; a text that was changed needs a second time."""
        if self._is_sure or self.query_one(TextArea).text == self._text:
            self.dismiss(None)
            return
        self._is_sure = True
        self.query_one("#hint", Static).update("esc again throws away what you wrote · ctrl+s keeps it")

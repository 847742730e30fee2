"""A report to read: text over whatever is shown, scrolled and left."""

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from retinue.ui.formats import clean_line


class Panel(ModalScreen[None]):
    """Shows something until it is closed."""

    DEFAULT_CSS = """
    Panel { align: center middle; background: $background 50%; }
    Panel > #frame { width: 92%; height: auto; max-height: 90%; border: round $accent; background: $background; }
    Panel #title { height: 1; padding: 0 1; text-style: bold; }
    Panel #scroll { height: auto; max-height: 100%; padding: 0 1; scrollbar-size-vertical: 1; }
    Panel #text { height: auto; }
    Panel #foot { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS = [
        Binding("escape,q,enter", "close", "close", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("pageup", "scroll(-10)", "page up", show=False),
        Binding("pagedown,space", "scroll(10)", "page down", show=False),
        Binding("home", "scroll(-100000)", "top", show=False),
        Binding("end", "scroll(100000)", "end", show=False),
    ]

    def __init__(self, title: str, text: RenderableType) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Title, text, foot."""
        with Vertical(id="frame"):
            yield Static(clean_line(self._title), id="title", markup=False)
            with VerticalScroll(id="scroll"):
                yield Static(self._text, id="text", markup=False)
            yield Static("↑↓ scroll · esc closes", id="foot", markup=False)

    def action_close(self) -> None:
        """Back."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """By some lines."""
        self.query_one("#scroll", VerticalScroll).scroll_relative(y=lines, animate=False)

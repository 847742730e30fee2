"""A report to read: text over whatever is shown, scrolled and left."""

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from retinue.ui.bindings import bind
from retinue.ui.formats import clean_line, fit_parts
from retinue.ui.screens.overlay import Overlay


class Panel(Overlay[None]):
    """Shows something until it is closed."""

    DEFAULT_CSS = """
    Panel { align: center middle; background: $background 50%; }
    Panel > #frame { width: 92%; height: auto; max-height: 90%; border: round $accent; background: $background; }
    Panel #title { height: 1; padding: 0 1; text-style: bold; }
    Panel #scroll { height: auto; padding: 0 1; scrollbar-size-vertical: 1; }
    Panel #text { height: auto; }
    Panel #foot { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS = [
        bind("tui.select.cancel", "close"),
        bind("tui.select.confirm", "close"),
        bind("app.view.close", "close"),
        bind("tui.select.up", "scroll(-1)"),
        bind("app.view.lineUp", "scroll(-1)"),
        bind("tui.select.down", "scroll(1)"),
        bind("app.view.lineDown", "scroll(1)"),
        bind("tui.select.pageUp", "page(-1)"),
        bind("app.view.pageUp", "page(-1)"),
        bind("tui.select.pageDown", "page(1)"),
        bind("app.view.pageDown", "page(1)"),
        bind("app.view.top", "scroll(-100000)"),
        bind("app.view.bottom", "scroll(100000)"),
    ]

    HINTS: tuple[str, ...] = ("↑↓ scroll", "esc closes")

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
            yield Static("", id="foot", markup=False)

    def on_resize(self) -> None:
        """The text scrolls; what tells how stays in sight."""
        if not self.query("#scroll"):
            return  # it was left before this came to be done
        frame = self.query_one("#frame")
        rest = frame.gutter.height + sum(each.outer_size.height or 1 for each in self.query("#title, #foot"))
        self.query_one("#scroll").styles.max_height = max(1, self.size.height * 9 // 10 - rest)
        self.query_one("#foot", Static).update(fit_parts(self.HINTS, self.size.width * 92 // 100 - 4))

    def action_close(self) -> None:
        """Back."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """By some lines."""
        self.query_one("#scroll", VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, step: int) -> None:
        """By a page."""
        scroll = self.query_one("#scroll", VerticalScroll)
        (scroll.scroll_page_up if step < 0 else scroll.scroll_page_down)(animate=False)

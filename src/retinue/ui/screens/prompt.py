"""Text input dialogs: one line, a few lines, or a whole page."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static, TextArea

from retinue.ui.default_keys import bind_all
from retinue.ui.formats import clean_line
from retinue.ui.screens.overlay import Overlay
from retinue.ui.widgets.line import TextLine

_HINT = "ctrl+s: done · esc: back"
_BINDINGS = bind_all({"leave": "tui.select.cancel", "send": "app.text.done"}, is_first=True)


class TextPrompt(Overlay[str | None]):
    """Asks for a text; the result is the text, or None."""

    DEFAULT_CSS = """
    TextPrompt { align: center middle; background: $background 50%; }
    TextPrompt > #frame {
        width: 90%; max-width: 100; height: auto; border: round $accent; background: $background; padding: 0 1;
    }
    TextPrompt Input, TextPrompt Input:focus { border: none; height: 1; padding: 0; background: $boost; }
    TextPrompt TextArea { height: 10; border: none; background: $boost; }
    TextPrompt #hint { color: $text-muted; height: auto; }
    """
    BINDINGS = _BINDINGS

    def __init__(self, question: str, *, value: str = "", is_long: bool = False, is_secret: bool = False) -> None:
        """`is_secret` hides what is typed."""
        super().__init__()
        self._question = question
        self._value = value
        self._is_long = is_long
        self._is_secret = is_secret

    def compose(self) -> ComposeResult:
        with Vertical(id="frame"):
            yield Static(clean_line(self._question), markup=False)
            if self._is_long:
                yield TextArea(self._value, id="answer")
            else:
                yield TextLine(self._value, password=self._is_secret, id="answer")
            hint = _HINT if self._is_long else "enter: done · esc: back"
            yield Static(hint, id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one("#answer").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_send(self) -> None:
        """Return the answer after keys that are still queued have been handled."""
        self.query_one("#answer").call_later(self._send)

    def _send(self) -> None:
        answer = self.query_one("#answer")
        self.dismiss(answer.text if isinstance(answer, TextArea) else self.query_one(Input).value)

    def action_leave(self) -> None:
        self.dismiss(None)


class TextPage(Overlay[str | None]):
    """Edits a long text; the result is the text, or None."""

    DEFAULT_CSS = """
    TextPage { align: center middle; background: $background 50%; }
    TextPage > #frame { width: 96%; height: 90%; border: round $accent; background: $background; padding: 0 1; }
    TextPage #title { height: auto; max-height: 3; text-style: bold; }
    TextPage TextArea { height: 1fr; border: none; background: $boost; }
    TextPage #hint { height: 1; color: $text-muted; }
    """
    BINDINGS = _BINDINGS

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._is_sure = False

    def compose(self) -> ComposeResult:
        with Vertical(id="frame"):
            yield Static(clean_line(self._title), id="title", markup=False)
            yield TextArea(self._text, id="text", tab_behavior="indent", show_line_numbers=False)
            yield Static(_HINT, id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()

    def on_text_area_changed(self) -> None:
        """A new change must be discarded with a new confirmation."""
        self._is_sure = False
        self.query_one("#hint", Static).update(_HINT)

    def action_send(self) -> None:
        self.dismiss(self.query_one(TextArea).text)

    def action_leave(self) -> None:
        """Leave without a result; a changed text requires a second press."""
        if self._is_sure or self.query_one(TextArea).text == self._text:
            self.dismiss(None)
            return
        self._is_sure = True
        self.query_one("#hint", Static).update("esc again: discard your changes · ctrl+s: keep them")

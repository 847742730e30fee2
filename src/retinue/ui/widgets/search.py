"""Search in the conversation of the main screen: the input line and its results."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input, Static

from retinue.ui.navigation import ConversationReader
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.line import TextLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

PAUSE_S = 0.2
"""Seconds without typing before the search starts."""
_STEPS = {
    0: ("tui.altScreen.searchClose", "tui.select.cancel"),
    1: ("tui.altScreen.searchNext", "tui.select.down"),
    -1: ("tui.altScreen.searchPrevious", "tui.select.up"),
}


class SearchInput(TextLine):
    """Handles search keys before the input does: 1 for next, -1 for previous, 0 to close."""

    app: "RetinueApp"

    def __init__(self, on_step: Callable[[int], None], *, id: str) -> None:
        super().__init__(id=id)
        self._on_step = on_step

    async def _on_key(self, event: events.Key) -> None:
        means = self.app.keys.means
        step = next((step for step, actions in _STEPS.items() if any(means(event.key, each) for each in actions)), None)
        if step is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        self._on_step(step)


class SearchLine(Horizontal):
    """Hidden until the user searches."""

    DEFAULT_CSS = """
    SearchLine { height: 1; padding: 0 2; display: none; background: $boost; }
    SearchLine.-open { display: block; }
    SearchLine > Static { width: auto; color: $text-muted; }
    SearchLine > SearchInput, SearchLine > SearchInput:focus {
        width: 1fr; border: none; height: 1; padding: 0 1; background: $boost;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pause: Timer | None = None
        self._reader: ConversationReader | None = None

    def compose(self) -> ComposeResult:
        yield Static("search", markup=False)
        yield SearchInput(self._step, id="search-words")
        yield Static("", id="search-found", markup=False)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self, reader: ConversationReader) -> None:
        """Open with the last search text selected."""
        self._reader = reader
        self.add_class("-open")
        words = self.query_one(SearchInput)
        words.focus()
        words.select_all()
        self._tell("")

    def close(self) -> None:
        """Close and focus the editor; the last result stays visible."""
        if self._reader is None:
            return
        self.remove_class("-open")
        self._stop_waiting()
        self._reader.forget()
        self._reader = None
        self.screen.query_one(Editor).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search after a pause in typing."""
        event.stop()
        self._stop_waiting()
        if self.is_open:
            self._pause = self.set_timer(PAUSE_S, self._find)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Ignored: Enter is one of the search keys."""
        event.stop()

    def _step(self, step: int) -> None:
        if not step:
            self.close()
        elif self._pause is not None:
            self._stop_waiting()
            self._find()
        elif self._reader is not None:
            self._tell(self._reader.go_found(step))

    def _find(self) -> None:
        self._pause = None
        text = self.query_one(SearchInput).value
        if self._reader is None:
            return
        if text.strip():
            self._tell(self._reader.find(text))
        else:
            self._reader.forget()
            self._tell("")

    def _tell(self, text: str) -> None:
        self.query_one("#search-found", Static).update(text)

    def _stop_waiting(self) -> None:
        if self._pause is not None:
            self._pause.stop()
            self._pause = None

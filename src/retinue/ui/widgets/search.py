"""Search in a conversation: the input line and its results."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static

from retinue.ui.navigation import ConversationReader
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.line import TextLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

PAUSE_S = 0.2
"""Seconds without typing before the search starts."""


class SearchInput(TextLine):
    """Handles search keys before the input does."""

    app: "RetinueApp"

    @dataclass
    class Used(Message):
        """A search key: 1 for next, -1 for previous, 0 to close."""

        step: int

    async def _on_key(self, event: events.Key) -> None:
        keys, key = self.app.keys, event.key
        steps = (
            (0, ("tui.altScreen.searchClose", "tui.select.cancel")),
            (1, ("tui.altScreen.searchNext", "tui.select.down")),
            (-1, ("tui.altScreen.searchPrevious", "tui.select.up")),
        )
        step = next((step for step, actions in steps if any(keys.means(key, each) for each in actions)), None)
        if step is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        self.post_message(self.Used(step))


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

    @dataclass
    class Changed(Message):
        """The search text has changed."""

        text: str

    @dataclass
    class Moved(Message):
        """Go to the next or previous result."""

        step: int

    class Closed(Message):
        """The search was closed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pause: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static("search", markup=False)
        yield SearchInput(id="search-words")
        yield Static("", id="search-found", markup=False)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self) -> None:
        """Open with the last search text selected."""
        self.add_class("-open")
        words = self.query_one(SearchInput)
        words.focus()
        words.select_all()
        self.tell("")

    def close(self) -> None:
        self.remove_class("-open")
        self._stop_waiting()

    def tell(self, text: str) -> None:
        """Show what was found."""
        self.query_one("#search-found", Static).update(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search after a pause in typing."""
        event.stop()
        self._stop_waiting()
        if self.is_open:
            self._pause = self.set_timer(PAUSE_S, self._send)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Ignored: Enter is one of the search keys."""
        event.stop()

    def on_search_input_used(self, event: SearchInput.Used) -> None:
        event.stop()
        if not event.step:
            self.post_message(self.Closed())
        elif self._pause is not None:
            self._stop_waiting()
            self._send()
        else:
            self.post_message(self.Moved(event.step))

    def _send(self) -> None:
        self._pause = None
        self.post_message(self.Changed(self.query_one(SearchInput).value))

    def _stop_waiting(self) -> None:
        if self._pause is not None:
            self._pause.stop()
            self._pause = None


class ConversationSearch:
    """Connects the search line with a conversation."""

    def __init__(self, line: SearchLine, reading: ConversationReader, editor: Editor) -> None:
        self._line = line
        self._reading = reading
        self._editor = editor

    @property
    def is_open(self) -> bool:
        return self._line.is_open

    def open(self) -> None:
        self._line.open()

    def find(self, text: str) -> None:
        if text.strip():
            self._line.tell(self._reading.find(text))
        else:
            self._reading.forget()
            self._line.tell("")

    def go(self, step: int) -> None:
        self._line.tell(self._reading.go_found(step))

    def close(self) -> None:
        """Close and focus the editor; the last result stays visible."""
        if self._line.is_open:
            self._line.close()
            self._reading.forget()
            self._editor.focus()

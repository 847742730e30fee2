"""Searching a conversation: the line to write in, what it finds, and back to the editor."""

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
"""How long nobody types before it is searched."""


class SearchInput(TextLine):
    """Gives the keys of searching to whoever asks first."""

    app: "RetinueApp"

    @dataclass
    class Used(Message):
        """One of the keys of searching: forward, back, or 0 to be done."""

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
    """Not there until somebody searches."""

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
        """Other words are looked for."""

        text: str

    @dataclass
    class Moved(Message):
        """The next place, or the one before."""

        step: int

    class Closed(Message):
        """Nobody searches any longer."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pause: Timer | None = None

    def compose(self) -> ComposeResult:
        """Label, words, what was found."""
        yield Static("search", markup=False)
        yield SearchInput(id="search-words")
        yield Static("", id="search-found", markup=False)

    @property
    def is_open(self) -> bool:
        """Whether somebody searches."""
        return self.has_class("-open")

    def open(self) -> None:
        """Begin, with the words of the last time ready to be typed over."""
        self.add_class("-open")
        words = self.query_one(SearchInput)
        words.focus()
        words.select_all()
        self.tell("")

    def close(self) -> None:
        """Go away."""
        self.remove_class("-open")
        self._stop_waiting()

    def tell(self, text: str) -> None:
        """Say what was found."""
        self.query_one("#search-found", Static).update(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search when nobody has typed for a moment."""
        event.stop()
        self._stop_waiting()
        if self.is_open:
            self._pause = self.set_timer(PAUSE_S, self._send)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """What Enter does is said by the keys of searching."""
        event.stop()

    def on_search_input_used(self, event: SearchInput.Used) -> None:
        """Go on, or be done."""
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


class Searching:
    """Stands between one line and one conversation."""

    def __init__(self, line: SearchLine, reading: ConversationReader, editor: Editor) -> None:
        self._line = line
        self._reading = reading
        self._editor = editor

    @property
    def is_open(self) -> bool:
        """Whether somebody searches."""
        return self._line.is_open

    def open(self) -> None:
        """Begin."""
        self._line.open()

    def find(self, text: str) -> None:
        """Other words."""
        if text.strip():
            self._line.tell(self._reading.find(text))
        else:
            self._reading.forget()
            self._line.tell("")

    def go(self, step: int) -> None:
        """The next place, or the one before."""
        self._line.tell(self._reading.go_found(step))

    def close(self) -> None:
        """Back to writing; what was found stays in sight."""
        if self._line.is_open:
            self._line.close()
            self._reading.forget()
            self._editor.focus()

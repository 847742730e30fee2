"""The editor: several lines, history, long pastes as a mark. Enter sends.

Knows nothing of what is done with the words; completion is asked for by a message.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea

PASTE_LINES = 10
PASTE_CHARS = 1000
_MARK = re.compile(r"\[paste #(\d+)[^\]]*\]")


class Editor(TextArea):
    """Where the user writes."""

    DEFAULT_CSS = """
    Editor {
        height: auto; min-height: 3; max-height: 14; width: 1fr;
        border: round $foreground 40%; background: transparent; padding: 0 1;
        scrollbar-size-vertical: 1;
    }
    Editor:focus { border: round $accent; }
    """
    BINDINGS = [
        Binding("enter", "submit", "send", show=False, id="tui.input.submit"),
        Binding("shift+enter,ctrl+j,alt+enter", "newline", "new line", show=False, id="tui.input.newLine"),
    ]

    @dataclass
    class Submitted(Message):
        """The user has sent this."""

        text: str

    @dataclass
    class Edited(Message):
        """The text or the cursor has changed."""

        text: str
        before_cursor: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False
        )
        self._history: list[str] = []
        self._at = 0
        self._draft = ""
        self._pastes: dict[int, str] = {}
        self.asks_first: Callable[[str], bool] = lambda key: False
        """Asked for each key before the editor sees it; True when it has been used already."""

    @property
    def words(self) -> str:
        """The text with all pastes in full."""
        return _MARK.sub(lambda found: self._pastes.get(int(found[1]), found[0]), self.text)

    @property
    def before_cursor(self) -> str:
        """The line up to the cursor, from the beginning of the text."""
        return self.get_text_range((0, 0), self.cursor_location)

    def remember(self, text: str) -> None:
        """Add to the history that the arrow keys go through."""
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history.append(text)
        self._at = len(self._history)

    def put(self, text: str) -> None:
        """Replace the text; the cursor goes to its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def replace_before(self, count: int, text: str) -> None:
        """Replace that many characters before the cursor, all in its line."""
        row, column = self.cursor_location
        self.replace(text, (row, max(0, column - count)), (row, column))

    def clear_all(self) -> None:
        """Empty it, pastes too."""
        self._pastes.clear()
        self.load_text("")

    def action_submit(self) -> None:
        """Send what is there, if anything is."""
        text = self.words
        if not text.strip():
            return
        self.remember(text)
        self.clear_all()
        self.post_message(self.Submitted(text))

    def action_newline(self) -> None:
        """Begin another line."""
        self.insert("\n")

    async def _on_key(self, event: events.Key) -> None:
        if self.asks_first(event.key):
            event.stop()
            event.prevent_default()
            return
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.action_submit()
            return
        if event.key == "up" and self.cursor_location[0] == 0 and self._recall(-1):
            event.stop()
            event.prevent_default()
            return
        if event.key == "down" and self.cursor_at_last_line and self._recall(+1):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        event.stop()
        event.prevent_default()
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARS:
            self.insert(text)
            return
        number = len(self._pastes) + 1
        self._pastes[number] = text
        size = f"+{lines} lines" if lines > 1 else f"{len(text)} chars"
        self.insert(f"[paste #{number} {size}]")

    def on_text_area_changed(self) -> None:
        """Tell whoever completes."""
        self.post_message(self.Edited(self.text, self.before_cursor))

    def _recall(self, step: int) -> bool:
        """Go through the history; what was being written is its newest entry."""
        if not self._history or not 0 <= self._at + step <= len(self._history):
            return False
        if self._at == len(self._history):
            if step > 0:
                return False
            self._draft = self.text
        self._at += step
        self.put(self._draft if self._at == len(self._history) else self._history[self._at])
        if step < 0:
            self.move_cursor((0, 0))
        return True

"""The editor: several lines, history, long pastes as a mark, what was deleted to put back. Enter sends.

Knows nothing of what is done with the words; whoever completes or asks is given each key first.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Location

from retinue.app.mentions import is_image, render_mention
from retinue.core.terminal import escape_text
from retinue.ui.history import History
from retinue.ui.keys import DEFAULTS, NO_KEY
from retinue.ui.pastes import Pastes

MOST_DELETED = 20


def _bind(action: str, method: str) -> Binding:
    return Binding(DEFAULTS[action] or NO_KEY, method, "", show=False, id=action)


class Editor(TextArea, inherit_bindings=False):
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
        _bind("tui.input.submit", "submit"),
        _bind("tui.input.newLine", "newline"),
        _bind("app.clipboard.pasteImage", "paste"),
        _bind("tui.editor.cursorUp", "older"),
        _bind("tui.editor.cursorDown", "newer"),
        _bind("tui.editor.historyPrevious", "recall(-1)"),
        _bind("tui.editor.historyNext", "recall(1)"),
        _bind("tui.editor.cursorLeft", "cursor_left"),
        _bind("tui.editor.cursorRight", "cursor_right"),
        _bind("tui.editor.cursorWordLeft", "cursor_word_left"),
        _bind("tui.editor.cursorWordRight", "cursor_word_right"),
        _bind("tui.editor.cursorLineStart", "cursor_line_start"),
        _bind("tui.editor.cursorLineEnd", "cursor_line_end"),
        _bind("tui.editor.deleteCharBackward", "delete_left"),
        _bind("tui.editor.deleteCharForward", "delete_right"),
        _bind("tui.editor.deleteWordBackward", "cut_word_left"),
        _bind("tui.editor.deleteWordForward", "cut_word_right"),
        _bind("tui.editor.deleteToLineStart", "cut_line_start"),
        _bind("tui.editor.deleteToLineEnd", "cut_line_end"),
        _bind("tui.editor.yank", "yank"),
        _bind("tui.editor.yankPop", "yank_older"),
        _bind("tui.editor.undo", "undo"),
        # Selecting is not in pi's list.
        Binding("shift+left", "cursor_left(True)", show=False),
        Binding("shift+right", "cursor_right(True)", show=False),
        Binding("shift+up", "cursor_up(True)", show=False),
        Binding("shift+down", "cursor_down(True)", show=False),
        Binding("shift+home", "cursor_line_start(True)", show=False),
        Binding("shift+end", "cursor_line_end(True)", show=False),
        Binding("ctrl+shift+left", "cursor_word_left(True)", show=False),
        Binding("ctrl+shift+right", "cursor_word_right(True)", show=False),
        Binding("ctrl+shift+z", "redo", show=False),
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
        # A cursor that blinks would draw the screen twice a second while nothing happens.
        self.set_reactive(TextArea.cursor_blink, False)
        self.history_list = History()
        self.on_remembered: Callable[[str], None] = lambda text: None
        """Told of each new entry of the history."""
        self.asks_first: Callable[[events.Key], bool] = lambda event: False
        """Asked for each key before the editor sees it; True when it has been used already."""
        self._pastes = Pastes()
        self._deleted: list[str] = []
        self._yanked: tuple[Location, int] | None = None
        """Where the last thing was put back, and which it was, counted from the end."""

    @property
    def words(self) -> str:
        """The text with all pastes in full."""
        return self._pastes.expand(self.text)

    @property
    def before_cursor(self) -> str:
        """The text up to the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    def remember(self, text: str) -> None:
        """Add to the history that the arrow keys go through."""
        if self.history_list.add(text):
            self.on_remembered(text)

    def put(self, text: str) -> None:
        """Replace the text, which can be undone; the cursor goes to its end."""
        self.replace(escape_text(text), (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def replace_before(self, count: int, text: str) -> None:
        """Replace that many characters before the cursor, all in its line."""
        row, column = self.cursor_location
        end = self.replace(text, (row, max(0, column - count)), (row, column)).end_location
        self.move_cursor(end)

    def clear_all(self) -> None:
        """Empty it, pastes too."""
        self._pastes.clear()
        self.load_text("")

    def action_submit(self) -> None:
        """Send what is there, if anything is; a backslash before Enter means a new line."""
        if self.before_cursor.endswith("\\"):
            self.replace_before(1, "\n")
            return
        text = self.words
        if not text.strip():
            return
        self.remember(text)
        self.clear_all()
        self.post_message(self.Submitted(text))

    def action_newline(self) -> None:
        """Begin another line."""
        self._replace_via_keyboard("\n", *self.selection)

    def action_older(self) -> None:
        """A line up; at the top, what was written before."""
        at_top = self.cursor_location[0] == 0 and not self.wrapped_document.location_to_offset(self.cursor_location).y
        if not (at_top and self.action_recall(-1)):
            self.action_cursor_up()

    def action_newer(self) -> None:
        """A line down; at the end, what was written after."""
        if not (self.cursor_at_last_line and self.action_recall(1)):
            self.action_cursor_down()

    def action_recall(self, step: int) -> bool:
        """Go through the history; what was being written is its newest entry. Whether there was any."""
        text = self.history_list.move(step, self.text)
        if text is None:
            return False
        self.put(text)
        if step < 0:
            self.move_cursor((0, 0))
        return True

    def action_delete_left(self) -> None:
        """Delete a character, or a whole mark of a paste."""
        count = self._pastes.find_mark(self.before_cursor) if self.selection.is_empty else 0
        if count:
            self.replace_before(count, "")
        else:
            super().action_delete_left()

    def action_cut_word_left(self) -> None:
        """Delete the word before the cursor."""
        self._cut(self.action_delete_word_left)

    def action_cut_word_right(self) -> None:
        """Delete the word after the cursor."""
        self._cut(self.action_delete_word_right)

    def action_cut_line_start(self) -> None:
        """Delete to the start of the line."""
        self._cut(self.action_delete_to_start_of_line)

    def action_cut_line_end(self) -> None:
        """Delete to the end of the line, or the line's end."""
        self._cut(self.action_delete_right if self.cursor_at_end_of_line else self.action_delete_to_end_of_line)

    def action_yank(self) -> None:
        """Put back what was deleted last."""
        if self._deleted:
            self._put_back(self.selection.start, self.selection.end, 1)

    def action_yank_older(self) -> None:
        """Put back what was deleted before that instead."""
        if self._yanked is not None and self._deleted:
            start, number = self._yanked
            self._put_back(start, self.cursor_location, number % len(self._deleted) + 1)

    def _cut(self, delete: Callable[[], None]) -> None:
        before = self.text
        delete()
        at, length = len(self.before_cursor), len(before) - len(self.text)
        if length > 0:
            self._deleted = [*self._deleted, before[at : at + length]][-MOST_DELETED:]

    def _put_back(self, start: Location, end: Location, number: int) -> None:
        result = self.replace(self._deleted[-number], start, end)
        self.move_cursor(result.end_location)
        self._yanked = (min(start, end), number)

    async def _on_key(self, event: events.Key) -> None:
        if self.asks_first(event):
            event.stop()
            event.prevent_default()
            return
        if event.key in ("enter", "tab"):
            event.prevent_default()  # what these do is said by the bindings
            return
        if event.is_printable:
            self._yanked = None
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = _to_mention(text) or self._pastes.add(escape_text(text))
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def on_text_area_changed(self) -> None:
        """Tell whoever completes."""
        self.post_message(self.Edited(self.text, self.before_cursor))

    def on_text_area_selection_changed(self) -> None:
        """The cursor has moved."""
        self.post_message(self.Edited(self.text, self.before_cursor))


def _to_mention(text: str) -> str:
    """A mention for the path of an image, as terminals paste it when a file is dropped on them; else nothing."""
    line = text.strip()
    if "\n" in line or not 1 < len(line) < 1000:
        return ""
    if line.startswith("file://"):
        line = unquote(urlsplit(line).path)
    elif line[0] in "'\"" or "\\" in line:
        try:
            line = shlex.split(line)[0]
        except (ValueError, IndexError):
            return ""
    if not line.startswith(("/", "~", "./", "../")) or not is_image(line):
        return ""
    mention = render_mention(line)
    return f"{mention} " if mention else ""

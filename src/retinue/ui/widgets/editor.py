"""The prompt editor: multiple lines, history, placeholders for long pastes, and yanking of deleted text. Enter
sends.

Must not know what is done with the text; `asks_first` gets each key before the editor.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from textual import events, on
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Location

from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_text
from retinue.ui.default_keys import bind
from retinue.ui.widgets.history_search import HistorySearch
from retinue.views.prompt_files import MOST_IMAGES, is_image, render_mention

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

LINES = 10
CHARS = 1000
_MARK = late_pattern(r"\[paste #\d+ [^\]\n]*\]")


class Pastes:
    """Placeholders for long pastes. A placeholder that the user has changed is plain text."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def add(self, text: str) -> str:
        """The text to insert for a paste: itself if short, else a placeholder."""
        lines = text.count("\n") + 1
        if lines <= LINES and len(text) <= CHARS:
            return text
        self._count += 1
        size = f"+{lines} lines" if lines > 1 else f"{len(text)} chars"
        mark = f"[paste #{self._count} {size}]"
        self._texts[mark] = text
        return mark

    def expand(self, text: str) -> str:
        """Replace placeholders with their pastes."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def find_mark(self, before: str) -> int:
        """The length of the placeholder at the end of a text; 0 if there is none."""
        if not before.endswith("]"):
            return 0
        mark = before[before.rfind("[") :]
        return len(mark) if mark in self._texts else 0

    def clear(self) -> None:
        """Forget all pastes; numbering continues, so that placeholders stay unique."""
        self._texts.clear()


MOST = 1000


class PromptHistory:
    """History entries, oldest first; after the newest comes the current draft."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self.entries = list(entries)[-MOST:]
        self._at = len(self.entries)
        self._draft = ""

    def load(self, entries: Sequence[str]) -> None:
        """Insert older entries before the current ones."""
        self.entries = [*entries, *self.entries][-MOST:]
        self._at = len(self.entries)

    def add(self, text: str) -> bool:
        """Append an entry unless it repeats the last one, and go to the end; returns whether it was appended."""
        is_new = bool(text.strip()) and self.entries[-1:] != [text]
        if is_new:
            self.entries = [*self.entries, text][-MOST:]
        self._at = len(self.entries)
        self._draft = ""
        return is_new

    def move(self, step: int, written: str) -> str | None:
        """The entry one step further; None at either end. `written` is the current text of the editor."""
        place = self._at + step
        if not 0 <= place <= len(self.entries):
            return None
        if self._at == len(self.entries):
            self._draft = written
        self._at = place
        return self._draft if place == len(self.entries) else self.entries[place]


MOST_DELETED = 20
MOST_PATHS = 4000
"""Maximum characters of pasted text that is checked for paths of dropped files."""


class Editor(TextArea, inherit_bindings=False):
    app: "RetinueApp"
    DEFAULT_CSS = """
    Editor {
        height: auto; min-height: 3; max-height: 14; width: 1fr;
        border: round $foreground 40%; background: transparent; padding: 0 1;
        scrollbar-size-vertical: 1;
    }
    Editor:focus { border: round $accent; }
    """
    BINDINGS = [
        bind("tui.input.submit", "submit"),
        bind("app.message.followUp", "submit_later"),
        bind("tui.input.newLine", "newline"),
        bind("tui.editor.cursorUp", "older"),
        bind("tui.editor.cursorDown", "newer"),
        bind("tui.editor.historyPrevious", "recall(-1)"),
        bind("tui.editor.historyNext", "recall(1)"),
        bind("tui.editor.historySearch", "search_history"),
        bind("tui.editor.cursorLeft", "cursor_left"),
        bind("tui.editor.cursorRight", "cursor_right"),
        bind("tui.editor.cursorWordLeft", "cursor_word_left"),
        bind("tui.editor.cursorWordRight", "cursor_word_right"),
        bind("tui.editor.cursorLineStart", "cursor_line_start"),
        bind("tui.editor.cursorLineEnd", "cursor_line_end"),
        bind("tui.editor.deleteCharBackward", "delete_left"),
        bind("tui.editor.deleteCharForward", "delete_right"),
        bind("tui.editor.deleteWordBackward", "cut_word_left"),
        bind("tui.editor.deleteWordForward", "cut_word_right"),
        bind("tui.editor.deleteToLineStart", "cut_line_start"),
        bind("tui.editor.deleteToLineEnd", "cut_line_end"),
        bind("tui.editor.yank", "yank"),
        bind("tui.editor.yankPop", "yank_older"),
        bind("tui.editor.undo", "undo"),
        bind("tui.editor.redo", "redo"),
        bind("tui.editor.jumpForward", "jump(1)"),
        bind("tui.editor.jumpBackward", "jump(-1)"),
        bind("tui.editor.pageUp", "cursor_page_up"),
        bind("tui.editor.pageDown", "cursor_page_down"),
        bind("tui.input.copy", "copy"),
        bind("tui.editor.selectLeft", "cursor_left(True)"),
        bind("tui.editor.selectRight", "cursor_right(True)"),
        bind("tui.editor.selectUp", "cursor_up(True)"),
        bind("tui.editor.selectDown", "cursor_down(True)"),
        bind("tui.editor.selectLineStart", "cursor_line_start(True)"),
        bind("tui.editor.selectLineEnd", "cursor_line_end(True)"),
        bind("tui.editor.selectWordLeft", "cursor_word_left(True)"),
        bind("tui.editor.selectWordRight", "cursor_word_right(True)"),
    ]

    @dataclass
    class Submitted(Message):
        """The user has sent a text."""

        text: str
        is_later: bool = False
        """Deliver it when the agent would stop."""

    class Edited(Message):
        """The text or the cursor has changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False
        )
        # A blinking cursor would redraw the screen twice a second while idle.
        self.set_reactive(TextArea.cursor_blink, False)
        self.history_list = PromptHistory()
        self.on_remembered: Callable[[str], None] = lambda text: None
        """Called with each new history entry."""
        self.asks_first: Callable[[events.Key], bool] = lambda event: False
        """Called with each key before the editor; returns True if it has handled the key."""
        self.search = HistorySearch(self)
        self.is_private: Callable[[str], bool] = lambda text: False
        """Whether a text must not get into the history."""
        self._pastes = Pastes()
        self._deleted: list[str] = []
        self._yanked: tuple[Location, int] | None = None
        """Where text was last yanked, and its position from the end of the deleted texts."""
        self._jump = 0
        """The direction in which to jump to the next typed character: 1, -1, or 0 for no jump."""

    @property
    def words(self) -> str:
        """The text with all pastes in full."""
        return self._pastes.expand(self.text)

    @property
    def before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def put(self, text: str) -> None:
        """Replace the text (can be undone) and move the cursor to the end."""
        self.replace(escape_text(text), (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def replace_before(self, count: int, text: str) -> None:
        """Replace `count` characters before the cursor; they must be in the same line."""
        row, column = self.cursor_location
        end = self.replace(text, (row, max(0, column - count)), (row, column)).end_location
        self.move_cursor(end)

    def clear_all(self) -> None:
        """Remove the text and all pastes."""
        self._pastes.clear()
        self.load_text("")

    def action_submit(self) -> None:
        """Send the text if there is any; a backslash before the cursor starts a new line instead."""
        if self.before_cursor.endswith("\\"):
            self.replace_before(1, "\n")
            return
        self._send(is_later=False)

    def action_submit_later(self) -> None:
        """Send the text to be delivered when the agent would stop."""
        self._send(is_later=True)

    def _send(self, *, is_later: bool) -> None:
        text = self.words
        if text.strip():
            if not self.is_private(text) and self.history_list.add(text):
                self.on_remembered(text)
            self.clear_all()
            self.post_message(self.Submitted(text, is_later))

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_older(self) -> None:
        """Move up a line; in the first line, go to the previous history entry."""
        at_top = self.cursor_location[0] == 0 and not self.wrapped_document.location_to_offset(self.cursor_location).y
        if not (at_top and self.action_recall(-1)):
            self.action_cursor_up()

    def action_newer(self) -> None:
        """Move down a line; in the last line, go to the next history entry."""
        if not (self.cursor_at_last_line and self.action_recall(1)):
            self.action_cursor_down()

    def action_recall(self, step: int) -> bool:
        """Show another history entry; returns whether there was one."""
        text = self.history_list.move(step, self.text)
        if text is None:
            return False
        self.put(text)
        if step < 0:
            self.move_cursor((0, 0))
        return True

    def action_search_history(self) -> None:
        self.search.open()

    def action_delete_left(self) -> None:
        """Delete a character, or a whole placeholder of a paste."""
        count = self._pastes.find_mark(self.before_cursor) if self.selection.is_empty else 0
        if count:
            self.replace_before(count, "")
        else:
            super().action_delete_left()

    def action_cut_word_left(self) -> None:
        self._cut(self.action_delete_word_left)

    def action_cut_word_right(self) -> None:
        self._cut(self.action_delete_word_right)

    def action_cut_line_start(self) -> None:
        self._cut(self.action_delete_to_start_of_line)

    def action_cut_line_end(self) -> None:
        """Delete to the end of the line; at the end, delete the line break."""
        self._cut(self.action_delete_right if self.cursor_at_end_of_line else self.action_delete_to_end_of_line)

    def action_yank(self) -> None:
        """Insert the text that was deleted last."""
        if self._deleted:
            self._put_back(self.selection.start, self.selection.end, 1)

    def action_yank_older(self) -> None:
        """Replace the yanked text with the one deleted before it."""
        if self._yanked is not None and self._deleted:
            start, number = self._yanked
            self._put_back(start, self.cursor_location, number % len(self._deleted) + 1)

    def action_jump(self, step: int) -> None:
        """Wait for a character, then move the cursor to its next or previous occurrence."""
        self._jump = step
        self.border_subtitle = "jump to which character?"

    def _land(self, sign: str | None) -> bool:
        """Jump to a character; returns whether a jump was pending."""
        step, self._jump = self._jump, 0
        self.border_subtitle = ""
        if not step or not sign:
            return False
        at = len(self.before_cursor)
        place = self.text.find(sign, at + 1) if step > 0 else self.text.rfind(sign, 0, at)
        if place >= 0:
            before = self.text[:place]
            self.move_cursor((before.count("\n"), place - (before.rfind("\n") + 1)))
        return True

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
        if self.search.is_open and self.search.take_key(event):
            event.stop()
            event.prevent_default()
            return
        is_landing = self._jump != 0 and self._land(event.character if event.is_printable else None)
        if is_landing or self.asks_first(event):
            event.stop()
            event.prevent_default()
            return
        if (action := self._find_action(event.key)) is not None:
            # Run the action now: through a binding of the screen it would run after keys typed in the meantime.
            event.stop()
            event.prevent_default()
            await self.app.run_action(action, self)
            return
        if event.key in ("enter", "tab"):
            event.prevent_default()  # only the key table decides what these keys do
            return
        if event.is_printable:
            self._yanked = None
        await super()._on_key(event)

    def _find_action(self, key: str) -> str | None:
        keys = self.app.keys
        bindings = (each for each in self.BINDINGS if isinstance(each, Binding))
        return next((each.action for each in bindings if keys.means(key, each.id or "")), None)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.take_paste(event.text)

    def take_paste(self, text: str) -> None:
        """Insert pasted text: a long one as a placeholder, image paths as mentions."""
        self.search.close()
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _to_mentions(text) or self._pastes.add(escape_text(text))
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    @on(TextArea.Changed)
    @on(TextArea.SelectionChanged)
    def _announce(self) -> None:
        self.post_message(self.Edited())


def _to_mentions(text: str) -> str:
    """Mentions for paths of images, which terminals paste when files are dropped on them; empty for other text."""
    line = text.strip()
    if "\n" in line or not 1 < len(line) < MOST_PATHS:
        return ""
    mentions = [_to_mention(line)]
    if not mentions[0]:
        try:
            words = shlex.split(line)
        except ValueError:
            return ""
        mentions = [_to_mention(word) for word in words[:MOST_IMAGES]]
    return " ".join([*mentions, ""]) if mentions and all(mentions) else ""


def _to_mention(path: str) -> str:
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if not path.startswith(("/", "~", "./", "../")) or not is_image(path):
        return ""
    return render_mention(path)

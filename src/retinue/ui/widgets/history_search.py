"""Incremental search in the input history, as in a shell: the match is shown in the editor while the user types."""

from typing import TYPE_CHECKING

from rich.markup import escape
from textual.events import Key

if TYPE_CHECKING:
    from retinue.ui.widgets.editor import Editor

ACTION = "tui.editor.historySearch"


class HistorySearch:
    """A search for one editor; `take_key` gets all keys while it is open."""

    def __init__(self, editor: "Editor") -> None:
        self._editor = editor
        self.is_open = False
        self._needle = ""
        self._draft = ""
        """What the editor contained before."""
        self._at = 0
        """The place of the match in the history."""

    def open(self) -> None:
        self.is_open, self._needle, self._draft = True, "", self._editor.text
        self._at = len(self._editor.history_list.entries)
        self._tell("")

    def close(self, *, is_kept: bool = True) -> bool:
        """End the search with the match in the editor, or with what was there before; returns whether it was open."""
        was_open, self.is_open = self.is_open, False
        if was_open:
            self._editor.border_subtitle = ""
            if not is_kept:
                self._editor.put(self._draft)
        return was_open

    def take_key(self, event: Key) -> bool:
        """Handle a key; False if it has ended the search and is for the editor."""
        keys = self._editor.app.keys
        if keys.means(event.key, ACTION):
            self._find(self._at - 1)
        elif keys.means(event.key, "tui.select.cancel"):
            self.close(is_kept=False)
        elif keys.means(event.key, "tui.select.confirm"):
            self.close()
        elif keys.means(event.key, "tui.editor.deleteCharBackward"):
            self._needle = self._needle[:-1]
            self._find(len(self._editor.history_list.entries) - 1)
        elif event.is_printable and event.character:
            self._needle += event.character
            self._find(self._at)
        else:
            self.close()
            return False
        return True

    def _find(self, start: int) -> None:
        """Show the newest entry from `start` on that contains the words; smaller letters match capitals too."""
        entries, shown = self._editor.history_list.entries, self._editor.text
        for at in range(min(start, len(entries) - 1), -1, -1):
            text = entries[at]
            folded = text if self._needle != self._needle.lower() else text.lower()
            if self._needle and self._needle in folded and (at == self._at or text != shown):
                self._at = at
                self._editor.put(text)
                self._tell("")
                return
        self._tell(" (no match)" if self._needle else "")

    def _tell(self, result: str) -> None:
        keys = self._editor.app.keys
        hint = f"{keys.show(ACTION)}: older · enter: edit · esc: cancel"
        self._editor.border_subtitle = escape(f"history{result}: {self._needle}▏ {hint}")

"""What was written before, and where one is in it. Pure; what is kept on disk is somebody else's."""

from collections.abc import Sequence

MOST = 1000


class History:
    """Entries from old to new; after the newest comes what is being written now."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._entries = list(entries)[-MOST:]
        self._at = len(self._entries)
        self._draft = ""

    def load(self, entries: Sequence[str]) -> None:
        """Put entries of earlier days before those of today."""
        self._entries = [*entries, *self._entries][-MOST:]
        self._at = len(self._entries)

    def add(self, text: str) -> bool:
        """One more, unless it is the last one again; the place is at the end afterwards. Whether it is new."""
        is_new = bool(text.strip()) and self._entries[-1:] != [text]
        if is_new:
            self._entries = [*self._entries, text][-MOST:]
        self._at = len(self._entries)
        self._draft = ""
        return is_new

    def move(self, step: int, written: str) -> str | None:
        """What is there one step further; None at either end. `written` is what the editor shows now."""
        place = self._at + step
        if not 0 <= place <= len(self._entries):
            return None
        if self._at == len(self._entries):
            self._draft = written
        self._at = place
        return self._draft if place == len(self._entries) else self._entries[place]

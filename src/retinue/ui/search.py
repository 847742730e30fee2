"""Searching the conversation of the main screen: the line to write in, what it finds, and back to the editor."""

from retinue.ui.navigation import Reading
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.search import SearchLine


class Searching:
    """Stands between one line and one conversation."""

    def __init__(self, line: SearchLine, reading: Reading, editor: Editor) -> None:
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

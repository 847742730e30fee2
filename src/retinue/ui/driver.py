"""The terminal as textual drives it, made to survive a terminal that goes away. Knows nothing of what is shown."""

import os
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App


class PatientFile:
    """A terminal's output that swallows what cannot be written any more: a writer that dies would hold up everybody."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write, or not."""
        try:
            return self._file.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        """Let it out, or not."""
        try:
            self._file.flush()
        except (OSError, ValueError):
            # What is left in the buffer would fail again at the interpreter's end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)

    def fileno(self) -> int:
        """Of the file behind it."""
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """textual's, writing patiently."""

    def __init__(self, app: "App[Any]", **named: Any) -> None:
        super().__init__(app, **named)
        self._file: Any = PatientFile(sys.__stderr__)  # type: ignore[arg-type]


def is_gone(fileno: int = 0) -> bool:
    """Whether the terminal at a descriptor has been closed; the end of a pipe counts too."""
    poll = select.poll()
    poll.register(fileno, 0)
    return any(state & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, state in poll.poll(0))

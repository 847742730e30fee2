"""The terminal as textual drives it: odd key sequences, a terminal that goes away, and no escape codes in texts."""

import os
import re
import select
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from rich.segment import Segment
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter

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


# All of these have no width, so that leaving them out changes no layout; lone surrogates have and cannot be written.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class SafeText(LineFilter):
    """Leaves out what could command a terminal, and links that hide where they lead."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments without it."""
        return [_clean(segment) for segment in segments]


def _clean(segment: Segment) -> Segment:
    text, style, control = segment
    if text.isascii() and text.isprintable() and (style is None or style.link is None):
        return segment
    safe = _SURROGATE.sub("?", _UNSAFE.sub("", text))
    if style is not None and style.link is not None:
        style = style.update_link(None)
    return Segment(safe, style, control)


class Combined(Enum):
    """Keys with Alt, by textual's names for them."""

    ENTER = "alt+enter"
    BRACKET = "alt+ctrl+right_square_bracket"
    B = "alt+b"
    F = "alt+f"
    BACKSPACE = "alt+backspace"


_SENT = {
    "\x1b\r": Combined.ENTER,
    "\x1b\x1d": Combined.BRACKET,
    # textual calls these three ctrl+left, ctrl+right and ctrl+w, so that nobody could give them another meaning.
    "\x1bb": Combined.B,
    "\x1bf": Combined.F,
    "\x1b\x7f": Combined.BACKSPACE,
    "\x1b\x08": Combined.BACKSPACE,
}


def teach_keys() -> None:
    """Let textual know them. Only terminals with a newer protocol tell them apart by themselves."""
    from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

    known: dict[str, object] = ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    known.update({sent: (key,) for sent, key in _SENT.items()})

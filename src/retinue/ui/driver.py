"""Terminal driver for Textual: extra key sequences, a terminal that disappears, and removal of unsafe characters."""

import os
import re
import select
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TextIO

from rich.segment import Segment
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter

if TYPE_CHECKING:
    from textual.app import App


class TerminalOutput:
    """Terminal output that ignores write errors: if textual's writer thread died, the whole program would hang."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            return self._file.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._file.flush()
        except (OSError, ValueError):
            # The rest of the buffer would fail again at interpreter exit.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)

    def fileno(self) -> int:
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """textual's driver with output that ignores write errors."""

    def __init__(self, app: "App[Any]", **named: Any) -> None:
        super().__init__(app, **named)
        self._file: Any = TerminalOutput(sys.__stderr__)  # type: ignore[arg-type]


def is_gone(fileno: int = 0) -> bool:
    """Whether the terminal (or pipe) at a descriptor has been closed."""
    poll = select.poll()
    poll.register(fileno, 0)
    return any(state & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, state in poll.poll(0))


# These characters have no width, so removing them does not change the layout. Lone surrogates have a width but cannot
# be written.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class SafeText(LineFilter):
    """Removes control characters that a terminal would obey, and hyperlinks, which hide their target."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [_clean(segment) for segment in segments]


def remove_unsafe(text: str) -> str:
    """Remove characters that a terminal would obey or cannot show."""
    return _SURROGATE.sub("?", _UNSAFE.sub("", text))


def _clean(segment: Segment) -> Segment:
    text, style, control = segment
    if text.isascii() and text.isprintable() and (style is None or style.link is None):
        return segment
    safe = remove_unsafe(text)
    if style is not None and style.link is not None:
        style = style.update_link(None)
    return Segment(safe, style, control)


_SENT = {
    "\x1b\r": "alt+enter",
    "\x1b\x1d": "alt+ctrl+right_square_bracket",
    # textual maps these to ctrl+left, ctrl+right and ctrl+w, so they could not be bound separately.
    "\x1bb": "alt+b",
    "\x1bf": "alt+f",
    "\x1b\x7f": "alt+backspace",
    "\x1b\x08": "alt+backspace",
}
"""Keys with Alt by what a terminal sends for them."""


def teach_keys() -> None:
    """Register the key sequences with textual; only terminals with a newer protocol distinguish these keys."""
    from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

    known: dict[str, object] = ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    # textual reads only the values of its own enum members.
    known.update({sent: (SimpleNamespace(value=key),) for sent, key in _SENT.items()})

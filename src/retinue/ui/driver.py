"""Terminal driver for Textual: extra key sequences, the terminal's background, a terminal that disappears, and removal
of unsafe characters.
"""

import os
import select
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TextIO

from rich.segment import Segment
from textual._xterm_parser import XTermParser
from textual.color import Color
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.message import Message

from retinue.core.pattern import late_pattern

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


class BackgroundReported(Message):
    """The terminal has reported its background colour."""

    def __init__(self, *, is_dark: bool) -> None:
        super().__init__()
        self.is_dark = is_dark


BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
_MUTE = ("linux", "dumb")
"""Terminals that do not understand the query."""
_COLOUR = "[rgba:#/0-9A-Fa-f]"
# An answer ends with a terminator, or where something follows that cannot belong to it because its end was lost.
_ANSWER = late_pattern(rf"\x1b\]11;({_COLOUR}*)(?:\x07|\x9c|\x1b\\|(?=[^rgba:#/0-9A-Fa-f\x1b])|(?=\x1b[^\\]))")
_PART = late_pattern(rf"\x1b\](?:1(?:1(?:;{_COLOUR}*\x1b?)?)?)?\Z")
_RGB = late_pattern(r"rgba?:([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})")
KEY_S, PART_S = 0.1, 2.0
"""Seconds to wait for the rest of what may be the key Alt+] and of what is part of an answer."""


class TerminalParser(XTermParser):
    """textual's parser without the terminal's answer about its background, which textual would take for typed text."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._part = ""
        self._part_s = 0.0
        self._is_answered = False

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)  # the end of the input
            return
        data, self._part = self._part + data, ""
        for answer in _ANSWER.findall(data):
            self._is_answered = True
            if (is_dark := read_is_dark(answer)) is not None:
                yield BackgroundReported(is_dark=is_dark)
        data = _ANSWER.sub("", data)
        if part := _PART.search(data):
            data, self._part, self._part_s = data[: part.start()], part[0], time.monotonic()
        if data:
            yield from super().feed(data)

    def tick(self) -> Iterable[Message]:
        limit_s = KEY_S if self._is_answered and len(self._part) <= len("\x1b]") else PART_S
        if self._part and time.monotonic() - self._part_s > limit_s:
            part, self._part = self._part, ""
            if not part.startswith("\x1b]11;"):
                yield from super().feed(part)
        yield from super().tick()


def read_is_dark(answer: str) -> bool | None:
    """Whether a reported colour such as `rgb:1616/1616/1e1e` is dark; None if it cannot be read."""
    found = _RGB.fullmatch(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return bool(0.299 * red + 0.587 * green + 0.114 * blue < 0.5)


class TerminalDriver(LinuxDriver):
    """textual's driver with output that ignores write errors; asks the terminal for its background colour."""

    def __init__(self, app: "App[Any]", **named: Any) -> None:
        super().__init__(app, **named)
        self._file: Any = TerminalOutput(sys.__stderr__)  # type: ignore[arg-type]
        linux_driver.XTermParser = TerminalParser  # type: ignore[attr-defined]

    def start_application_mode(self) -> None:
        """The answer arrives with the input; nothing waits for it."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is not None and self.input_tty and os.environ.get("TERM") not in _MUTE:
            self.write(BACKGROUND_QUERY)
            self.flush()


def is_gone(fileno: int = 0) -> bool:
    """Whether the terminal (or pipe) at a descriptor has been closed."""
    poll = select.poll()
    poll.register(fileno, 0)
    return any(state & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, state in poll.poll(0))


# These characters have no width, so removing them does not change the layout. Lone surrogates have a width but cannot
# be written.
_UNSAFE = late_pattern(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE = late_pattern("[\ud800-\udfff]")


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

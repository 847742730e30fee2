"""Restores the terminal by force. Imported first, so it must not import anything slow."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_RESTORE = "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"


_found: list[Any] | None = None
"""The terminal attributes at program start, before the UI could change them."""


def recall_attributes() -> list[Any] | None:
    """The terminal attributes at program start, or the current ones if they were not recorded."""
    return read_attributes() if _found is None else _found


def read_attributes() -> list[Any] | None:
    """The current terminal attributes; None if there is no terminal."""
    if sys.platform == "win32":
        return None
    import termios

    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def give_back(before: list[Any] | None, write: Callable[[int, bytes], int] = os.write) -> None:
    """Leave all terminal modes of the UI and restore the attributes."""
    with contextlib.suppress(OSError):
        write(2, _RESTORE.encode())
    if before is not None and sys.platform != "win32":
        import termios

        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)


def end_at_once() -> None:
    """Let SIGINT end the program at once until the UI handles signals: nothing is open yet that must be closed.

    A KeyboardInterrupt could be raised anywhere during imports and be swallowed there.
    """
    global _found  # a process has one terminal, and its original state can be read only once
    before = _found = read_attributes()
    if sys.platform == "win32" or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def end(number: int, frame: object) -> None:
        if read_attributes() != before:  # the UI has started
            give_back(before)
        os._exit(128 + number)

    signal.signal(signal.SIGINT, end)

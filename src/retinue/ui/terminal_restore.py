"""Giving the terminal back by force, whatever is stuck. Loaded first of all, so it imports nothing that takes time."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_RESTORE = "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"


_found: list[Any] | None = None
"""How the program found the terminal; a screen may have changed it before anybody else comes to look."""


def recall_attributes() -> list[Any] | None:
    """How the terminal was set up when the program began, or is now where nobody has looked before."""
    return read_attributes() if _found is None else _found


def read_attributes() -> list[Any] | None:
    """How the terminal is set up now; None where there is none."""
    if sys.platform == "win32":
        return None
    import termios

    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def give_back(before: list[Any] | None, write: Callable[[int, bytes], int] = os.write) -> None:
    """Leave all modes of a screen, and set the terminal up as it was."""
    with contextlib.suppress(OSError):
        write(2, _RESTORE.encode())
    if before is not None and sys.platform != "win32":
        import termios

        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)


def end_at_once() -> None:
    """Until somebody else watches for it, let an interrupt end the program: nothing is open yet that must be closed.

    As an exception it could come up anywhere while modules are loaded, and be swallowed there.
    """
    global _found  # there is one terminal, and one moment in which it is as it was
    before = _found = read_attributes()
    if sys.platform == "win32" or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def end(number: int, frame: object) -> None:
        if read_attributes() != before:  # the screen has begun
            give_back(before)
        os._exit(128 + number)

    signal.signal(signal.SIGINT, end)

"""How the program ends when a signal says so, or when its terminal is gone: in good order, but not for ever."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from retinue.ui.driver import is_gone
from retinue.ui.terminal_restore import give_back, recall_attributes

STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
PATIENCE_S = 5.0
"""How long closing everything may take after a signal."""


class ShutdownWatch:
    """Watches for signals while the screen is open; `leave` is called with an exit status at the first one."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._before: list[Any] | None = None
        self._deadline: threading.Timer | None = None
        self.status = 0
        """Of the signal that came; 0 when none has."""

    def watch(self) -> None:
        """Begin; must be called in the main thread, with its loop running."""
        self._before = recall_attributes()
        loop = asyncio.get_running_loop()
        for number, status in STATUSES.items():
            loop.add_signal_handler(number, self.end, status)

    def check_terminal(self) -> None:
        """End when nobody can see anything any more: a hang-up is not told to everybody."""
        if not self.status and is_gone():
            self.end(STATUSES[signal.SIGHUP])

    def end(self, status: int) -> None:
        """The first call ends it in good order, a second one at once."""
        if self.status:
            self._break_off()
        self.status = status
        self._deadline = threading.Timer(PATIENCE_S, self._break_off)
        self._deadline.daemon = True
        self._deadline.start()
        self._leave(status)

    def settle(self) -> None:
        """It has ended in good order."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _break_off(self) -> None:
        """Give the terminal back and go, whatever still hangs."""
        give_back(self._before)
        os._exit(self.status)

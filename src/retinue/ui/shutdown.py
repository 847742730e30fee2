"""Ends the UI when a signal arrives or the terminal is gone: cleanly, but within a time limit."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from retinue.ui.driver import is_gone
from retinue.ui.terminal_restore import give_back, recall_attributes

STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
WAIT_LIMIT_S = 5.0
"""Seconds that a clean shutdown may take after a signal."""


class ShutdownWatch:
    """Handles signals while the UI is open; calls `leave` with an exit status at the first one."""

    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._before: list[Any] | None = None
        self._deadline: threading.Timer | None = None
        self.status = 0
        """The exit status of the signal; 0 if there was none."""

    def watch(self) -> None:
        """Install the signal handlers. Must be called in the main thread while its event loop runs."""
        self._before = recall_attributes()
        loop = asyncio.get_running_loop()
        for number, status in STATUSES.items():
            loop.add_signal_handler(number, self.end, status)

    def check_terminal(self) -> None:
        """End when the terminal is closed; not every process receives SIGHUP for that."""
        if not self.status and is_gone():
            self.end(STATUSES[signal.SIGHUP])

    def end(self, status: int) -> None:
        """The first call ends cleanly, a second one at once."""
        if self.status:
            self._break_off()
        self.status = status
        self._deadline = threading.Timer(WAIT_LIMIT_S, self._break_off)
        self._deadline.daemon = True
        self._deadline.start()
        self._leave(status)

    def settle(self) -> None:
        """Cancel the time limit after a clean shutdown."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _break_off(self) -> None:
        """Restore the terminal and exit, even if something hangs."""
        give_back(self._before)
        os._exit(self.status)

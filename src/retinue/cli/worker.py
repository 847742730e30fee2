"""`retinue worker`: takes runs from the database of a cluster until a signal ends it.

The first SIGINT or SIGTERM stops it cleanly: it takes no new runs, lets current runs finish and gives the rest back.
The second one ends it at once; the other workers then take over its runs.
"""

import asyncio
import os
import signal
import sys
from typing import NoReturn

from retinue.app.remote import WorkerOptions, start_worker
from retinue.cli.options import Options
from retinue.cli.voice import say
from retinue.core.errors import UsageError, quote

MOST_SLOTS = 1000
MOST_TOTAL = 100_000
MOST_DRAIN_S = 86_400
_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def run_worker(options: Options) -> int:
    """Work until a signal arrives, which decides the exit status; returns only on an error."""
    default = WorkerOptions()
    wish = WorkerOptions(
        database=options.database,
        slots=read_number("--slots", options.slots or str(default.slots), 1, MOST_SLOTS),
        total=read_number("--total", options.total, 0, MOST_TOTAL) if options.total else None,
        approve=options.approve,
        drain_s=read_number("--drain", options.drain or f"{default.drain_s:g}", 0, MOST_DRAIN_S),
    )
    asyncio.run(_WorkerProcess(wish).run())


def read_number(flag: str, text: str, least: int, most: int) -> int:
    """Parse a whole number. Raises UsageError."""
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise UsageError(f"{flag} must be a whole number from {least} to {most}, not {quote(text)}")
    return int(text)


class _WorkerProcess:
    """One worker and its signal handlers."""

    def __init__(self, wish: WorkerOptions) -> None:
        self._wish = wish
        self._stop = asyncio.Event()
        self._ended_by = 0

    async def run(self) -> NoReturn:
        """Work, then end the process."""
        loop = asyncio.get_running_loop()
        for number, status in _SIGNALS.items():
            loop.add_signal_handler(number, self._end, status)
        await start_worker(self._wish, self._stop, say)
        # Everything was given back. Threads and other engine resources need no orderly shutdown.
        sys.stderr.flush()
        os._exit(self._ended_by)

    def _end(self, status: int) -> None:
        if self._ended_by:
            os._exit(self._ended_by)
        self._ended_by = status
        self._stop.set()

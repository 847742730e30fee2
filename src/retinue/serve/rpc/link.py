"""What a command works with: the Retinue, the way back to the caller, and what is under way for them.

Holds state, decides nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from retinue.app import Retinue
from retinue.core.jsonline import encode_json

Start = Callable[[Coroutine[Any, Any, object]], "asyncio.Task[None]"]


class Link:
    """One caller of one Retinue."""

    def __init__(self, crew: Retinue, write: Callable[[bytes], None], start: Start) -> None:
        """`start` begins work in the background, whose failure is told and goes no further."""
        self.crew = crew
        self.is_open = True
        """False once the caller is gone."""
        self.compacting: asyncio.Task[Any] | None = None
        """The task that compacts because the caller asked for it."""
        self.is_compacting = False
        """Whether the context is being summarised, for whatever reason."""
        self._write = write
        self._start = start
        self._prompting: asyncio.Task[None] | None = None

    def send(self, record: dict[str, Any]) -> None:
        """Tell the caller something."""
        self._write(encode_json(record) + b"\n")

    @property
    def is_busy(self) -> bool:
        """Whether the main agent works or is about to."""
        return self._prompting is not None or self.crew.is_busy

    def start_prompt(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin a prompt; returns at once."""
        self._prompting = self._start(work)
        self._prompting.add_done_callback(self._forget)

    async def abort(self, *, spares_runs: bool = False) -> None:
        """Stop whatever the main agent and its crew do, and wait until they have; or the main agent alone."""
        if self.compacting is not None and self.compacting is not asyncio.current_task():
            self.compacting.cancel()
            await asyncio.wait([self.compacting])
        # A prompt that was accepted this very moment has to begin before it can be stopped.
        if self._prompting is not None and not self.crew.is_busy:
            await asyncio.sleep(0)
        if not spares_runs:
            self.crew.abort()
        while self.is_busy:
            self.crew.abort(spares_runs=spares_runs)
            await self.leave_prompt()
            await self.crew.rest()

    async def leave_prompt(self) -> None:
        """Wait for the end of a prompt that was stopped."""
        if self._prompting is not None:
            await asyncio.wait([self._prompting])
            await asyncio.sleep(0)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        if self._prompting is task:
            self._prompting = None

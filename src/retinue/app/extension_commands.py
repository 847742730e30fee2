"""The commands there are in one session: those of its extensions, and `toolkit`."""

import asyncio
from typing import TYPE_CHECKING

from retinue.core.diagnostics import suggest
from retinue.core.errors import UsageError, quote
from retinue.settings.request import Request
from retinue.settings.subagents import CrewSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retinue.features.extensions.contained import Command

TOOLKIT = "toolkit"


class Commands:
    """What can be called by name, without the model."""

    def __init__(self, extended: "Mapping[str, Command]", settings: CrewSettings, request: Request) -> None:
        """`extended` are those of extensions, which come before our own."""
        self._extended = extended
        self._settings = settings
        self._request = request

    def has(self, name: str) -> bool:
        """Whether there is one of this name."""
        if name in self._extended:
            return True
        return name == TOOLKIT and self._settings.enabled and self._settings.commands.enabled

    async def run(self, name: str, args: str = "") -> str:
        """Give one the text behind its name; returns what to show. Raises RetinueError."""
        if name in self._extended:
            return await self._extended[name].run(args)
        if not self.has(name):
            raise UsageError(f"there is no command /{quote(name)[1:-1]}{suggest(name, self._extended)}")
        from retinue.app import run_checkup
        from retinue.views.toolkit import Toolkit

        return (await asyncio.to_thread(Toolkit(self._request, run_checkup).answer, args)).text

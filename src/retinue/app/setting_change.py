"""Changing one setting of subagents.json while a session is open."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from retinue.app.host import Stock
from retinue.app.open_session import Berth
from retinue.core.errors import ConfigError
from retinue.settings.preferences import Preferences
from retinue.settings.subagents import load_crew

if TYPE_CHECKING:
    from retinue.settings.preferences import Preference


class SettingChange(NamedTuple):
    """What became of it."""

    preference: "Preference"
    """As it is now."""
    problem: str = ""
    """Why it was not written and counts for this process alone; empty when it was."""


async def change_setting(
    berth: Berth, stock: Stock, key: str, text: str | None, *, accepts_file: bool
) -> SettingChange:
    """Write it, let the session go by it, and tell extensions; None takes it out. Raises UsageError."""
    world, problem = berth.world, ""
    values = {name: value for name, value in stock.settings.crew.items() if name != key}
    own = Preferences(world.paths, stock.environment, world.loaded.trust, values)
    try:
        if text is None:
            await asyncio.to_thread(own.reset, key)
        else:
            await asyncio.to_thread(own.change, key, text, accepts_file=accepts_file)
    except ConfigError as error:
        problem = str(error)
        values |= {} if text is None else {key: own.read(key, text)[1]}
    stock.settings = replace(stock.settings, crew=values)
    crew = load_crew(world.paths, stock.environment, trusted=world.is_trusted, flags=values)
    berth.retune(crew, persisted=not problem)
    own = Preferences(world.paths, stock.environment, world.loaded.trust, values)
    return SettingChange(own.find(key), problem)

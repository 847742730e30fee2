"""A feature that gives a child its own delegation tools in place of those it shares with its parent.

Which of them it gets is decided before; here they are only bound to the run that uses them.
"""

from collections.abc import Callable
from dataclasses import replace

from retinue.core.run import Outcome
from retinue.engine.setup import RunSetup
from retinue.surfaces.fleet.ports import FleetPorts
from retinue.surfaces.fleet.surface import TOOL_NAMES, map_fleet_tools


class Seating:
    """Seats one run in its crew."""

    name = "fleet"

    def __init__(self, open_ports: Callable[[RunSetup], FleetPorts]) -> None:
        self._open_ports = open_ports

    async def enter(self, setup: RunSetup) -> RunSetup:
        """The setup with tools that know whose they are; unchanged when it has none of them."""
        if not any(name in setup.tools for name in TOOL_NAMES):
            return setup
        own = map_fleet_tools(self._open_ports(setup))
        return replace(setup, tools={name: own.get(name, tool) for name, tool in setup.tools.items()})

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing to undo."""
        return outcome

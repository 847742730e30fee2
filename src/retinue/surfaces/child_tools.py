"""A feature that gives a child its own delegation tools in place of those it shares with its parent.

Which of them it gets is decided before; here they are only bound to the run that uses them. Knows no surface.
"""

from collections.abc import Callable, Mapping

from retinue.core.run import Outcome
from retinue.core.tool import Tool
from retinue.core.tool_table import find_surfaces
from retinue.engine.setup import RunSetup


class ChildTools:
    """Gives one run its own tools."""

    name = "delegation"

    def __init__(self, make_tools: Callable[[RunSetup], Mapping[str, Tool]]) -> None:
        self._make_tools = make_tools

    async def enter(self, setup: RunSetup) -> RunSetup:
        """The setup with tools that know whose they are; unchanged when it has none of them."""
        if not find_surfaces(setup.tools):
            return setup
        own = self._make_tools(setup)
        return setup.change(tools={name: own.get(name, tool) for name, tool in setup.tools.items()})

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing to undo."""
        return outcome

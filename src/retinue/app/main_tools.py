"""Which tools there are for the main agent of one session, and which of them it gets.

Makes them, and starts nothing; an agent that runs as a definition has the tools that its definition gives it.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from retinue.app.config import World
from retinue.app.host import Stock
from retinue.core.errors import UsageError, quote
from retinue.core.tool import Tool
from retinue.core.tool_table import BUILTIN_TOOLS, FINALIZE, SURFACES, list_surface_tools
from retinue.engine.run_config import Additions
from retinue.tools.registry import build_extra_tools, build_tools

if TYPE_CHECKING:
    from retinue.app.mcp import Connecting


class MainTools:
    """The tools of one main agent."""

    def __init__(self, stock: Stock, world: World, servers: "Connecting | None") -> None:
        """`servers` are those of MCP, None where there are none."""
        self._stock = stock
        self._world = world
        self._servers = servers

    def choose(self, additions: Additions) -> list[str]:
        """The names of those it gets, delegation included. Raises UsageError for one that there is not."""
        request = self._stock.request
        names = self._list_usual(additions) if request.tools is None else list(request.tools)
        left = [name for name in names if name not in request.exclude_tools]
        known = self._list_known(additions)
        servers = self._servers
        served = [] if servers is None else [name for name in [*left, *request.exclude_tools] if servers.may_have(name)]
        left = [name for name in left if name not in served]
        if request.is_child:
            # Whoever starts children names tools of its own world, and expects those that are here.
            gone = [name for name in left if name not in known]
            self._stock.tell_missing(f"there is no tool {quote(name)} here; left out" for name in gone)
            left = [name for name in left if name in known]
        for name in [*left, *request.exclude_tools]:
            if name not in known and name not in served:
                raise UsageError(f"there is no tool {quote(name)}; available: {', '.join(known)}")
        return list(dict.fromkeys(left))

    def build(self, names: list[str], delegation: Mapping[str, Tool], additions: Additions) -> dict[str, Tool]:
        """The tools of these names without those that are denied; `delegation` are those of its crew."""
        made = build_tools(self._stock.tool_options, [name for name in names if name in BUILTIN_TOOLS])
        given = {**made, **self._extra, **self._beside, **additions.tools, **self._stock.own.tools}
        if FINALIZE in names:
            from retinue.features.finalise import FinalizeTool

            given[FINALIZE] = FinalizeTool()
        given.update(delegation)
        return self._rename(self.drop_denied({name: given[name] for name in names}, additions))

    def _rename(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """The tools as the agent knows them."""
        names = self._stock.own.names
        if not names:
            return tools
        from retinue.tools.registry import rename_tools

        return rename_tools(tools, {shown: name for name in tools for shown, own in names.items() if own == name})

    def drop_denied(self, tools: dict[str, Tool], additions: Additions) -> dict[str, Tool]:
        """The tools without those that the user lets no agent have."""
        words = self._world.crew.settings.deny_tools
        if not words:
            return tools
        from retinue.tools.selectors import Offer, match_denied

        offers = {name: additions.offers.get(name) or Offer(tool.effect) for name, tool in tools.items()}
        denied = match_denied(words, offers, {})
        asked = [name for name in self._stock.request.tools or () if name in denied]
        self._stock.tell_missing(f"{name} is denied by the user's settings (denyTools); left out" for name in asked)
        return {name: tool for name, tool in tools.items() if name not in denied}

    def list_surfaces(self) -> list[str]:
        """What the settings offer the main agent; inside another program's agent it does not delegate by itself."""
        asked, usual = self._stock.request.surfaces, self._world.crew.settings.surfaces
        wanted = asked if asked is not None else () if self._stock.is_child else usual
        chosen = [name for name in SURFACES if name in wanted or "*" in wanted]
        return [name for name in chosen if self._may_have(name)]

    def _list_usual(self, additions: Additions) -> list[str]:
        """What it gets when nobody names tools."""
        delegation = list_surface_tools(self.list_surfaces())
        own = self._stock.own.tools
        return [*self._world.loaded.settings.default_tools, *self._beside, *own, *additions.tools, *delegation]

    def _list_known(self, additions: Additions) -> list[str]:
        delegation = list_surface_tools(name for name in SURFACES if self._may_have(name))
        known = [*BUILTIN_TOOLS, *self._extra, *self._beside, *self._stock.own.tools, *additions.tools, *delegation]
        return [*known, FINALIZE] if self._stock.is_child else known

    @cached_property
    def _extra(self) -> dict[str, Tool]:
        """Those that an agent's file may ask for: a child has been given them by name."""
        return build_extra_tools() if self._stock.is_child else {}

    @cached_property
    def _beside(self) -> dict[str, Tool]:
        """For the web, documents and languages, as far as they are switched on."""
        return {**self._world.outside.build(), **self._world.languages.build_main()}

    def _may_have(self, surface: str) -> bool:
        is_off = surface == "dispatch" and not self._world.guarding.switches.is_enabled
        is_child = self._stock.is_child and not self._stock.request.is_hosted
        return not is_off and self._world.crew.settings.allows_surface(surface, is_child=is_child)

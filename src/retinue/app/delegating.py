"""Who makes the delegation tools of each surface: one line a surface."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from retinue.core.tool import Tool

if TYPE_CHECKING:
    from retinue.app.crew import Crew

Maker: TypeAlias = "Callable[[Crew, str], Mapping[str, Tool]]"
"""The tools of one run of a crew by name. Called before the crew is open, so their descriptions are asked for later."""


def make_tools(crew: "Crew", run_id: str) -> dict[str, Tool]:
    """The delegation tools of one run, of all surfaces that its main agent has."""
    return {name: tool for surface in crew.world.surfaces for name, tool in MAKERS[surface](crew, run_id).items()}


def make_fleet(crew: "Crew", run_id: str) -> Mapping[str, Tool]:
    """The six of the fleet."""
    from retinue.surfaces.fleet.surface import map_fleet_tools

    return map_fleet_tools(crew.open_fleet(run_id))


MAKERS: dict[str, Maker] = {
    "fleet": make_fleet,
}

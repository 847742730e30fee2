"""Who makes the delegation tools of each surface: one line a surface."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from retinue.core.tool import Tool

if TYPE_CHECKING:
    from retinue.app.subagents import Crew
    from retinue.core.definition import Definition
    from retinue.engine.request import RunRequest
    from retinue.surfaces.subagent.ports import SubagentCall, SubagentPorts

Maker: TypeAlias = "Callable[[Crew, str], Mapping[str, Tool]]"
"""The tools of one run of a crew by name. Called before the crew is open, so their descriptions are asked for later."""


def make_tools(crew: "Crew", run_id: str) -> dict[str, Tool]:
    """The delegation tools of one run, of all surfaces that its main agent has."""
    return {name: tool for surface in crew.world.surfaces for name, tool in MAKERS[surface](crew, run_id).items()}


def make_fleet(crew: "Crew", run_id: str) -> Mapping[str, Tool]:
    """The six of the fleet."""
    from retinue.surfaces.fleet.surface import map_fleet_tools

    return map_fleet_tools(crew.open_fleet(run_id))


def make_subagent(crew: "Crew", run_id: str) -> Mapping[str, Tool]:
    """The one of the `subagent` surface."""
    from retinue.surfaces.subagent.tool import SubagentTool

    return {"subagent": SubagentTool(open_subagent(crew, run_id))}


def open_subagent(crew: "Crew", run_id: str, model: str | None = None) -> "SubagentPorts":
    """What calls of the `subagent` surface by one run work with; `model` is what its runs use instead of their own."""
    from retinue.engine.ids import make_uuid
    from retinue.settings.run_config import find_own_depth
    from retinue.settings.subagent_call import Asked, make_session_dir, prepare_run
    from retinue.surfaces.subagent.ports import SubagentPorts, SubagentSettings

    world = crew.world
    own = world.crew.settings.subagents

    def prepare(call: "SubagentCall") -> "tuple[Definition, RunRequest, str]":
        asked = Asked(call.agent, call.task, call.session_id, call.write, model, call.call_id)
        prepared = prepare_run(world.roster, asked, new_id=make_uuid)
        path = prepared[1].session_file
        if folder := Path(path).parent if path else crew.find_session_dir(run_id):
            make_session_dir(folder)
        return prepared

    settings = SubagentSettings(
        is_enabled=world.crew.settings.has_subagent,
        max_depth=own.max_depth,
        base_depth=find_own_depth(crew.environment),
        timeout_ms=own.timeout_ms,
        idle_timeout_ms=own.idle_timeout_ms,
        max_attempts=own.retry.max_attempts if own.retry.enabled else 1,
        allow_write=own.allow_write,
        home=str(world.paths.home or ""),
    )
    return SubagentPorts(crew.open_seat(run_id), settings, prepare)


def make_dispatch(crew: "Crew", run_id: str) -> Mapping[str, Tool]:
    """The one of the `dispatch` surface."""
    from retinue.settings.run_config import find_own_depth
    from retinue.surfaces.dispatch.ports import DispatchPorts
    from retinue.surfaces.dispatch.tool import NAME, DispatchTool

    guarding, roster, models = crew.world.guarding, crew.world.roster, crew.models
    ports = DispatchPorts(
        crew.open_seat(run_id),
        find=lambda name: roster.read().find(name, "dispatch"),
        is_enabled=lambda: guarding.read_switches().is_enabled,
        is_disabled=lambda name: guarding.read_switches().is_agent_off(name),
        find_model=models.find_profile,
        open_model=models.open,
        board=lambda: guarding.board,
        max_steps=guarding.switches.max_steps,
        base_depth=find_own_depth(crew.environment),
    )
    return {NAME: DispatchTool(ports)}


MAKERS: dict[str, Maker] = {
    "fleet": make_fleet,
    "subagent": make_subagent,
    "dispatch": make_dispatch,
}

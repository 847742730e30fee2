"""The delegation tools: who makes those of each surface, and calls of them by a caller that is no agent of ours."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from retinue.core.clock import Clock
from retinue.core.events import Event, ToolProgress
from retinue.core.messages import TextContent, ToolCall, ToolResultMessage
from retinue.core.tool import Tool, ToolContext
from retinue.engine.calls import CallPorts, run_calls
from retinue.engine.manager import Manager
from retinue.engine.runner import LiveRun

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
    from retinue.engine.clock import make_uuid
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
    return SubagentPorts(crew.open_caller(run_id), settings, prepare)


def make_dispatch(crew: "Crew", run_id: str) -> Mapping[str, Tool]:
    """The one of the `dispatch` surface."""
    from retinue.settings.run_config import find_own_depth
    from retinue.surfaces.dispatch.tool import NAME, DispatchPorts, DispatchTool

    guarding, roster, models = crew.world.guarding, crew.world.roster, crew.models
    ports = DispatchPorts(
        crew.open_caller(run_id),
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


MAX_SHOWN = 5


class Delegation:
    """The tools of all surfaces of one Retinue, for a caller such as an MCP host.

    There is no conversation around its calls, so nothing of them is written to the main session; runs they start are.
    """

    def __init__(
        self, tools: Mapping[str, Tool], main: LiveRun, manager: Manager, clock: Clock, renew: Callable[[], None]
    ) -> None:
        """`renew` begins to count anew what one caller may spend and start."""
        self.tools = tools
        self._main = main
        self._manager = manager
        self._clock = clock
        self._renew = renew
        self._calls = 0

    async def call(
        self, call_id: str, name: str, arguments: dict[str, object], on_progress: Callable[[str], None]
    ) -> ToolResultMessage:
        """Call a tool; whatever goes wrong is in the result. A cancel ends what the call has started and waits for."""
        setup = self._main.setup
        if not self._calls and not self._list_active():
            self._renew()

        def hear(event: Event) -> None:
            if isinstance(event, ToolProgress):
                on_progress("\n".join(block.text for block in event.content if isinstance(block, TextContent)))

        ports = CallPorts(
            run_id=setup.run_id,
            tools=self.tools,
            context=ToolContext(cwd=setup.cwd, run_id=setup.run_id, spill_dir=setup.spill_dir),
            publish=hear,
            clock=self._clock,
            hooks=setup.hooks,
        )
        self._calls += 1
        try:
            batch = await run_calls([ToolCall(call_id, name, arguments)], {}, ports)
        finally:
            self._calls -= 1
        return batch.results[0]

    def describe_work(self) -> str:
        """What the crew does now, in one line."""
        active = self._list_active()
        shown = ", ".join(active[:MAX_SHOWN])
        more = f" and {len(active) - MAX_SHOWN} more" if len(active) > MAX_SHOWN else ""
        return shown + more

    def _list_active(self) -> list[str]:
        runs = self._manager.list_runs()
        return [f"{run.agent} {run.id[:8]} {run.status.value}" for run in runs if not run.status.is_final]

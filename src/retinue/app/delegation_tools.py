"""Creates the delegation tools of each surface, and lets a caller that is not our agent use them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from retinue.app.session_parts import SessionParts
from retinue.core.clock import Clock
from retinue.core.environment import find_own_depth
from retinue.core.events import Event, ToolProgress
from retinue.core.messages import ToolCall, ToolResultMessage, join_text
from retinue.core.receipt import to_commands
from retinue.core.run import Run
from retinue.core.tool import Tool, ToolContext
from retinue.core.tool_table import SURFACE_TOOLS
from retinue.engine.calls import CallPorts, run_calls
from retinue.engine.manager import Manager, RemoteRuns
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import PathBases
from retinue.features.worktree.worktrees import WorktreeFactory
from retinue.settings.config import Config, read_worktree_options
from retinue.settings.files import bind_project, bind_user, read_bounded
from retinue.settings.inheritance import inherit_agents
from retinue.settings.paths import find_session_dir
from retinue.settings.subagents import SubagentsConfig
from retinue.surfaces.base import Caller
from retinue.surfaces.fleet.describe import MAX_TEMPLATE_BYTES
from retinue.surfaces.fleet.ports import FailedCalls, FleetPorts, FleetSettings
from retinue.tools.registry import build_family

if TYPE_CHECKING:
    from retinue.app.subagents import Subagents
    from retinue.core.definition import Definition
    from retinue.engine.request import RunRequest
    from retinue.surfaces.subagent.result import SubagentCall, SubagentPorts


class DelegationTools(Struct, frozen=True, eq=False):
    """Creates the delegation tools of runs. The main agent's are created before the subagents are opened."""

    parts: SessionParts
    surfaces: Sequence[str]
    """Surfaces whose tools the main agent and its subagents may have."""
    find: "Callable[[], Subagents]"
    """Called when a tool is used."""
    retries: FailedCalls
    worktree_factory: WorktreeFactory
    remote: RemoteRuns | None
    """Sends runs to other machines."""
    keeps_sessions: bool
    """Whether runs save a session even if the main agent saves none."""
    fleet: list[tuple[SubagentsConfig, FleetSettings]] = field(default_factory=list)
    """What the settings of the fleet were last made from, and these settings."""

    def make(self, run_id: str) -> dict[str, Tool]:
        """Return the tools of one run, of all surfaces."""
        return {name: tool for surface in self.surfaces for name, tool in MAKERS[surface](self, run_id).items()}

    def open_caller(self, run_id: str) -> Caller:
        parts, roster = self.parts, self.parts.config.roster
        return Caller(
            find_manager=lambda: self.find().manager,
            run_id=run_id,
            definitions=lambda: roster.glance().list(),
            resolve_model=parts.child_models.resolve,
            list_models=parts.child_models.list,
            clock=parts.host.clock,
            lease=parts.lease,
            allowed_agents=self._find_allowed(run_id),
            find_faults=roster.find_faults,
        )

    def read_fleet(self) -> FleetSettings:
        """Return the settings of the fleet; they are made again only after the user's settings have changed."""
        crew = self.parts.config.crew.settings
        if not self.fleet or self.fleet[0][0] is not crew:
            self.fleet[:] = [(crew, to_fleet(self.parts))]
        return self.fleet[0][1]

    def open_fleet(self, run_id: str) -> FleetPorts:
        return FleetPorts(
            self.open_caller(run_id),
            self.read_fleet,
            self.retries,
            schedule=lambda text, **members: self.find().schedule(text, **members),
            check_worktree=self.worktree_factory.check,
        )

    def open_subagent(self, run_id: str, model: str | None = None) -> "SubagentPorts":
        """Return the ports of the `subagent` surface for a run; `model` replaces the model of the runs it starts."""
        from retinue.engine.clock import make_uuid
        from retinue.settings.subagent_call import make_session_dir, prepare_run
        from retinue.surfaces.base import read_output_schema, read_verify
        from retinue.surfaces.subagent.result import SubagentPorts, SubagentSettings

        config = self.parts.config
        own = config.crew.settings.subagents

        def prepare(call: "SubagentCall") -> "tuple[Definition, RunRequest, str]":
            schema = read_output_schema(call.output_schema, self._find_cwd(run_id))
            judged = call.is_verify_judged
            verify = read_verify(call.verify, self.open_caller(run_id)) if judged else to_commands(call.verify)
            prepared = prepare_run(
                config.roster,
                call.agent,
                call.session_id,
                write=call.write,
                new_id=make_uuid,
                task=call.task,
                model=model,
                call_id=call.call_id,
                output_schema=schema,
                verify=verify,
                is_verify_judged=judged and bool(verify),
            )
            path = prepared[1].session_file
            if folder := Path(path).parent if path else self._find_session_dir(run_id):
                make_session_dir(folder)
            return prepared

        settings = SubagentSettings(
            is_enabled=config.crew.settings.has_subagent,
            max_depth=own.max_depth,
            base_depth=find_own_depth(self.parts.host.environment),
            timeout_ms=own.timeout_ms,
            idle_timeout_ms=own.idle_timeout_ms,
            max_attempts=own.retry.max_attempts if own.retry.enabled else 1,
            allow_write=own.allow_write,
            home=str(config.paths.home or ""),
        )
        return SubagentPorts(self.open_caller(run_id), settings, prepare)

    def _find_cwd(self, run_id: str) -> Path:
        manager = self.find().manager
        return (manager.live(run_id) or manager.root).setup.cwd

    def _find_allowed(self, run_id: str) -> tuple[str, ...] | None:
        """Return the agents that a run's definition lets it start; None means all."""
        run = None if run_id == self.parts.run_id else self.find().manager.find(run_id)
        if run is None:
            return inherit_agents(self.parts.host.environment)
        return self.parts.config.roster.find(run.agent, run.surface).allowed_subagents

    def _find_session_dir(self, run_id: str) -> Path | None:
        """Return where sessions of a run's children are saved; None if they are not."""
        manager, config = self.find().manager, self.parts.config
        tree = (manager.live(run_id) or manager.root).session.tree
        if tree is not None:
            return None if tree.main is None else tree.main.with_suffix("")
        if not self.keeps_sessions:
            return None
        setting = config.loaded.settings.session_dir
        return find_session_dir(config.paths, self.parts.host.environment, setting=setting) / "runs"


def build_delegation_tools(
    parts: SessionParts, surfaces: Sequence[str], find: "Callable[[], Subagents]", *, keeps_sessions: bool = True
) -> DelegationTools:
    """Build the tools of these surfaces; `find` returns the subagents once they are open."""
    from retinue.app.remote import open_remote

    host = parts.host
    # Runs on other machines could not draw on the budget of the process that started this one.
    remote = None if host.source is not None else (host.sent.open_remote or open_remote)(parts)
    return DelegationTools(
        parts,
        surfaces,
        find,
        FailedCalls(host.clock),
        WorktreeFactory(parts.config.paths.copies_dir, parts.warn, partial(read_worktree_options, parts.config)),
        remote,
        keeps_sessions,
    )


def make_fleet(tools: DelegationTools, run_id: str) -> Mapping[str, Tool]:
    from retinue.surfaces.fleet.ports import map_fleet_tools

    return map_fleet_tools(tools.open_fleet(run_id))


def make_subagent(tools: DelegationTools, run_id: str) -> Mapping[str, Tool]:
    return build_family("subagent", tools.open_subagent(run_id))


def make_dispatch(tools: DelegationTools, run_id: str) -> Mapping[str, Tool]:
    from retinue.surfaces.dispatch.tool import DispatchPorts

    guards, roster, models = tools.parts.guards, tools.parts.config.roster, tools.parts.child_models
    ports = DispatchPorts(
        tools.open_caller(run_id),
        find=lambda name: roster.read().find(name, "dispatch"),
        is_enabled=lambda: guards.read_switches().is_enabled,
        is_disabled=lambda name: guards.read_switches().is_agent_off(name),
        find_model=models.find_profile,
        open_model=models.open,
        hook_table=lambda: guards.hook_table,
        max_steps=guards.switches.max_steps,
        base_depth=find_own_depth(tools.parts.host.environment),
    )
    return build_family("dispatch", ports)


Maker: TypeAlias = Callable[[DelegationTools, str], Mapping[str, Tool]]
"""Returns the tools of one run by name. Called before the subagents exist, so it must not read descriptions."""
MAKERS: dict[str, Maker] = {
    "fleet": make_fleet,
    "subagent": make_subagent,
    "dispatch": make_dispatch,
}


def to_fleet(parts: SessionParts) -> FleetSettings:
    config = parts.config
    crew, paths = config.crew.settings, config.paths
    scope = config.loaded.settings.enabled_models if crew.scope_models else ()
    return FleetSettings(
        default_max_turns=crew.default_max_turns or None,
        default_join=crew.default_join_mode,
        scheduling=crew.scheduling_enabled and parts.has_session,
        model_scope=tuple(scope),
        wait_timeout_s=crew.wait_timeout_seconds,
        limits=crew.limits.to_limits(),
        description_mode=crew.tool_description_mode,
        fallback_agent=crew.fallback_subagent,
        output_transcript=crew.output_transcript,
        transcript_dir=str(paths.project / ".pi" / "output"),
        rollup_usage=crew.rollup_child_usage,
        agent_dir=str(paths.agent_dir),
        template_files=_find_templates(config),
        read_template=lambda path: _read_template(config, path),
        grounds=to_grounds(config),
    )


def to_grounds(config: Config) -> PathBases:
    paths = config.paths
    return PathBases(str(paths.cwd), str(paths.project), str(paths.home or ""))


def _find_templates(config: Config) -> tuple[Path, ...]:
    name, paths = "agent-tool-description.md", config.paths
    own = (paths.agent_dir / name,)
    return (paths.project / ".pi" / name, *own) if config.is_trusted and ".pi" in paths.configs else own


def _read_template(config: Config, path: Path) -> str | None:
    bind = bind_user if path.parent == config.paths.agent_dir else bind_project
    data = read_bounded(path, MAX_TEMPLATE_BYTES, bind(config.paths, config.crew.settings.sandbox.hidden))
    return None if data is None else data[:MAX_TEMPLATE_BYTES].decode("utf-8", "replace")


MAX_SHOWN = 5


class Delegation:
    """The tools of all surfaces of one Retinue, for a caller such as an MCP client.

    Its calls are not part of a conversation, so they are not written to the main session; the runs they start are.
    """

    def __init__(
        self, tools: Mapping[str, Tool], main: LiveRun, manager: Manager, clock: Clock, renew: Callable[[], None]
    ) -> None:
        """`renew` resets what one caller may spend and start."""
        self.tools = tools
        self._main = main
        self._manager = manager
        self._clock = clock
        self._renew = renew
        self._calls = 0

    async def call(
        self, call_id: str, name: str, arguments: dict[str, object], on_progress: Callable[[str], None]
    ) -> ToolResultMessage:
        """Call a tool; errors are in the result. A cancel stops what the call has started and waits for."""
        setup = self._main.setup
        if not self._calls and not self._list_active():
            self._renew()

        def hear(event: Event) -> None:
            if isinstance(event, ToolProgress):
                on_progress(join_text(event.content))

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

    @property
    def foreground(self) -> frozenset[str]:
        """The tools that start a run and wait for its report."""
        return frozenset(self.tools) & frozenset((*SURFACE_TOOLS["subagent"], *SURFACE_TOOLS["dispatch"]))

    def find_line(self, run_id: str) -> list[Run]:
        """Return a run and those above it, up to the one that this caller started; empty if it started none of them."""
        line: list[Run] = []
        while (run := self._manager.find(line[-1].parent_id if line else run_id)) is not None:
            line.append(run)
        return line if line and line[-1].parent_id == self._main.setup.run_id else []

    def describe_work(self) -> str:
        """Return the active runs in one line."""
        active = self._list_active()
        shown = ", ".join(active[:MAX_SHOWN])
        more = f" and {len(active) - MAX_SHOWN} more" if len(active) > MAX_SHOWN else ""
        return shown + more

    def _list_active(self) -> list[str]:
        runs = self._manager.list_runs()
        return [f"{run.agent} {run.id[:8]} {run.status.value}" for run in runs if not run.status.is_final]

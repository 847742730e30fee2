"""The crew of one main agent, put together: Manager, backend, outfitter, notifications, delegation tools.

Made when the main agent may delegate or somebody asks for a run; a Retinue that does neither pays for none of it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.app.config import World
from retinue.app.delegation_tools import make_tools
from retinue.app.extensions import Extending
from retinue.app.model_access import CrewModels
from retinue.app.schedules import Scheduling
from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.errors import UsageError
from retinue.core.events import Warned
from retinue.core.messages import CustomMessage
from retinue.core.run import Reason, Run
from retinue.core.tool import Tool
from retinue.durable.local.backend import FILE, DurableBackend, open_backend
from retinue.engine.budget import Lease
from retinue.engine.build import RunBuilder, RunHost, choose_runner
from retinue.engine.cleanup import Retention
from retinue.engine.clock import make_run_id
from retinue.engine.journal import CREW
from retinue.engine.limits import Bounds
from retinue.engine.manager import Manager, RemoteRuns
from retinue.engine.notify import Notifier
from retinue.engine.reactions import Reactions
from retinue.engine.recovery import Aftermath, Remains, find_branches, has_left_copies, read_remains
from retinue.engine.remote_children import RemoteHost
from retinue.engine.rights import RevokedTools
from retinue.engine.run_config import REMOTE, RemoteRequest, RunConfig, RunPlan
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import Grounds
from retinue.engine.session_path import find_session_dir as find_keeping_dir
from retinue.engine.setup import Feature, RunSetup
from retinue.features.place import survey_place
from retinue.features.transcript import Transcripts
from retinue.features.worktree.workshop import Workshop
from retinue.settings.bounds import bind_project, bind_user
from retinue.settings.files import read_bounded
from retinue.settings.inheritance import inherit_agents
from retinue.settings.paths import find_session_dir
from retinue.settings.run_config import build_run_config, find_depth_left, find_features
from retinue.surfaces.base import Caller, ChildTools
from retinue.surfaces.fleet.describe import MAX_TEMPLATE_BYTES
from retinue.surfaces.fleet.notification import render_notification
from retinue.surfaces.fleet.ports import FleetPorts, FleetSettings, RetryBook, ScheduledCall, ScheduleWish
from retinue.surfaces.fleet.post import open_notifier
from retinue.surfaces.names import DISPATCH
from retinue.tools.policy import Rights

if TYPE_CHECKING:
    from retinue.core.model import Model
    from retinue.engine.questions import Desk
    from retinue.sessions.log import Session


@dataclass(frozen=True, slots=True)
class CrewParts:
    """What the runs of one main agent are made from."""

    world: World
    models: CrewModels
    environment: Mapping[str, str]
    clock: Clock
    run_id: str
    """The main agent's."""
    tools: Mapping[str, Tool]
    """All there are for children, those of the surfaces left out."""
    lease: Lease
    extending: Extending
    revoked: RevokedTools
    """What has been taken from its runs, and from the main agent."""
    desk: "Desk"
    """Where its runs ask a person."""
    is_own_session: bool = True
    """Whether what the session says of earlier runs can be believed."""


class Crew:
    """Everything around the runs that a main agent starts."""

    def __init__(self, parts: CrewParts, remote: RemoteRuns | None = None) -> None:
        """`remote` lets runs work on other machines."""
        self.world = parts.world
        self._models = parts.models
        self.environment = parts.environment
        self._clock = clock = parts.clock
        self._own_tools = parts.tools
        self._lease = parts.lease
        self._extending = parts.extending
        self.revoked = parts.revoked
        self._is_own_session = parts.is_own_session
        self._remote = remote
        self._retries = RetryBook(clock)
        self._backend: DurableBackend | None = None
        self._workshop = Workshop(parts.world.paths.copies_dir, self._warn)
        self._main: LiveRun | None = None
        self._manager: Manager | None = None
        self._notifier: Notifier | None = None
        self._reactions: Reactions | None = None
        self._scheduling: Scheduling | None = None
        self._outfitter: RunBuilder | None = None
        self.dismissed = 0
        """Earlier runs that were not."""
        self.main_tools = make_tools(self, parts.run_id)
        """The delegation tools of the main agent."""

    @property
    def manager(self) -> Manager:
        """Of the crew; there once it is open."""
        assert self._manager is not None, "the crew is not open"
        return self._manager

    @property
    def ports(self) -> FleetPorts:
        """What the main agent's delegation tools work with."""
        return self.open_fleet(self.manager.root.setup.run_id)

    @property
    def models(self) -> CrewModels:
        """Where its models come from."""
        return self._models

    def find_defaults(self, definition: Definition) -> dict[str, Any]:
        """What the settings and the file say where a request says nothing, as its options. Raises UsageError."""
        return {
            "session_dir": find_keeping_dir(definition, to_grounds(self.world)),
            "keeps_session": definition.persist_session is not False,
            "isolation": "worktree" if definition.isolation == "worktree" else None,
        }

    def find(self, run_id: str) -> Run | None:
        """A run of the crew; None while it is not open."""
        return None if self._manager is None else self._manager.find(run_id)

    @property
    def reactions(self) -> Reactions:
        """Of the main agent, when it is at rest."""
        assert self._reactions is not None, "the crew is not open"
        return self._reactions

    async def open(self, main: LiveRun, rights: Rights) -> None:
        """Begin to work for a main agent, and take over what an earlier process left in its session."""
        settings = self.world.crew.settings
        self._main = main
        remains = self._read_remains(main.session)
        config = self._build_config()
        host = RunHost(self._clock, self._models, partial(survey_place, environment=self.environment), self.revoked)
        self._outfitter = outfitter = RunBuilder(host, config, root=rights)
        self._backend = backend = await open_backend(
            self.world.paths.own_dir / FILE,
            main,
            remains,
            choose=lambda run, request: choose_runner(config.find(run.agent, request.surface), request, config)[0],
            charge=outfitter.tree.leases.charge,
            warn=self._warn,
        )
        copies = await self._workshop.tidy(backend.returning) if has_left_copies(remains) else {}
        await find_branches(remains, backend.returning, self._workshop, main.setup.cwd)
        aftermath = Aftermath(main.session, self._clock, remains, copies)
        remains.drop_used(aftermath.read_words)
        main.bus.listen(outfitter.tree.hear, pieces=False, kinds=outfitter.tree.hears)
        if self._extending.servers is not None:
            self._extending.servers.join(outfitter.tree.rights.admit)
        await backend.__aenter__()
        recorder, transcripts = self.world.recorder, Transcripts(clock=self._clock, warn=self._warn)
        reactions = self._reactions = Reactions(main, backend)
        self._manager = Manager(
            main,
            outfitter,
            backend,
            clock=self._clock,
            new_id=make_run_id,
            bounds=Bounds(
                self._find_width(), find_depth_left(self.environment), max_spawns=settings.max_spawns_per_tree
            ),
            watchers=[*([] if recorder is None else [recorder.watch]), transcripts.watch],
            open_notifier=lambda manager: open_notifier(manager, backend, self._render, self._clock, reactions.rouse),
        )
        self._notifier = self._manager.notifier
        untold = self._manager.recover(remains, aftermath.judge)
        Retention(self._manager, backend, self._clock).open(untold)
        if self.world.has_session:
            ports = self.open_fleet(main.setup.run_id)
            self._scheduling = Scheduling(self.world, main.session.id, ports, self._clock, main.bus.publish)
            backend.start("scheduler", self._scheduling.run())

    def retune(self) -> None:
        """Go by the settings as they are now, as far as that is possible while a session goes on."""
        settings = self.world.crew.settings
        admission = self.manager.admission
        admission.bounds = replace(admission.bounds, max_spawns=settings.max_spawns_per_tree)
        self.manager.resize(self._find_width())
        if self._outfitter is not None:
            self._outfitter.limit_turns(settings.default_max_turns or None, settings.grace_turns)
        if self._scheduling is not None:
            self._scheduling.retune()

    def _read_remains(self, session: "Session") -> Remains:
        """What an earlier process left; nothing where somebody else could have written it."""
        remains = read_remains(session.customs(CREW))
        if self._is_own_session or not remains.runs:
            return remains
        self.dismissed = len(remains.runs)
        return Remains()

    async def close(self) -> None:
        """Stop everything; what has not finished can be resumed."""
        backend = self._backend
        if backend is None:
            return
        if self._manager is not None:
            self.reactions.close()
            self._manager.stop_all()
            if self._notifier is not None:
                self._notifier.close()
            await asyncio.sleep(0)  # what has a slot but has not begun must see that it is stopped
            await backend.__aexit__(None, None, None)
        await backend.close()
        if self._remote is not None:
            await self._remote.close()
        self._workshop.close()

    def _build_config(self) -> RunConfig:
        asked = find_features(self.world.roster, self._workshop)
        config = build_run_config(
            self.world.roster,
            self.world.loaded.settings,
            self.environment,
            # Whoever was dispatched never dispatches.
            tools={**self._own_tools, **{name: tool for name, tool in self.main_tools.items() if name != DISPATCH}},
            files=self.world.files,
            list_features=lambda plan: [*asked(plan), *self._surround(plan), *plan.additions.features],
        )
        rules = self.world.guarding.rules
        # What was sent to another machine sends on from there.
        runner = REMOTE if self._remote is not None and self._remote.is_usual else self.world.crew.settings.runner
        guarding, is_narrowed = self.world.guarding, self.world.is_narrowed
        return replace(
            config,
            orphan_dir=config.orphan_dir if self.world.keeps_children else None,
            lease=self._lease,
            extend=self._extending.load_child,
            rules=rules,
            runner=runner,
            asks=lambda: is_narrowed or guarding.may_ask(),
            has_remote=self._remote is not None and not is_narrowed,
            send_out=self._send_out,
        )

    def _find_width(self) -> int:
        """How many runs of one parent work at once."""
        return self.world.crew.settings.max_concurrent if self._remote is None else self._remote.find_width()

    def share(self, model: "Model") -> "Model":
        """The main agent's model, with the budget that it shares with runs elsewhere."""
        return model if self._remote is None else self._remote.share(model)

    def _send_out(self, setup: RunSetup, remote_request: RemoteRequest) -> LiveRun:
        if remote_request.runner == REMOTE and self._remote is not None:
            return self._remote.send(setup, remote_request, self.manager)
        from retinue.app.processes import build_outpost  # most crews work in one process

        outpost = build_outpost(self.world, self._models, self.environment, self._clock, self._own_tools, setup.cwd)
        return outpost.send(setup, remote_request)

    def _surround(self, plan: RunPlan) -> list[Feature]:
        """What stands around each run of the crew, beside what its definition asks for."""
        child_tools = ChildTools(lambda setup: make_tools(self, setup.run_id))
        return [child_tools, *self.world.guarding.surround(plan)]

    def restrain_elsewhere(self, run_id: str, tools: Sequence[str], *, readonly: bool) -> None:
        """Let a run and those below it know what they have lost that do not ask here; who cannot hear it is stopped."""
        manager, caller = self.manager, self.open_caller(run_id)
        for run in manager.list_runs():
            is_below, live = run.id == run_id or caller.find_run(run.id) is not None, manager.live(run.id)
            if run.is_guest and run.id == run_id and not run.status.is_final:
                # What is below a run loses it with that; where nobody can say it, the one above is stopped.
                is_said = manager.guests.speak(run.id, "restrict", {"tools": list(tools), "readonly": readonly})
                _ = is_said or manager.stop(manager.guests.find_host(run.id), Reason.PARENT)
            if not is_below or live is None:
                continue
            if not manager.hears(run.id):
                manager.stop(run.id, Reason.PARENT)
            elif isinstance(live, RemoteHost):
                live.restrict(tools, readonly=readonly)

    def judge_elsewhere(self) -> None:
        """Let runs that work elsewhere ask here from now on; who could not ask is stopped."""
        for run in self.manager.list_runs():
            live = self.manager.live(run.id)
            if live is not None and not self.manager.hears(run.id):
                self.manager.stop(run.id, Reason.PARENT)
            elif isinstance(live, RemoteHost):
                live.demand_judgement()

    def open_caller(self, run_id: str) -> Caller:
        """The place of one run in the crew."""
        return Caller(
            crew=lambda: self.manager,
            run_id=run_id,
            definitions=lambda: self.world.roster.glance().list(),
            resolve_model=self._models.resolve,
            list_models=self._models.list,
            clock=self._clock,
            lease=self._lease,
            allowed_agents=self._find_allowed(run_id),
            find_faults=self.world.roster.find_faults,
        )

    def _find_allowed(self, run_id: str) -> tuple[str, ...] | None:
        """The agents that a run's definition lets it start; None for all."""
        run = self.find(run_id)
        if run is None:
            return inherit_agents(self.environment)
        return self.world.roster.find(run.agent, run.surface).allowed_subagents

    def find_session_dir(self, run_id: str) -> Path | None:
        """Where sessions of the runs that a run starts are kept; None when they are not."""
        live = self.manager.live(run_id) or self.manager.root
        tree, settings = live.session.tree, self.world.loaded.settings
        if tree is not None:
            return None if tree.main is None else tree.main.with_suffix("")
        if not self.world.keeps_children:
            return None
        return find_session_dir(self.world.paths, self.environment, setting=settings.session_dir) / "runs"

    def open_fleet(self, run_id: str) -> FleetPorts:
        """What the fleet's tools of one run work with."""
        return FleetPorts(
            self.open_caller(run_id),
            lambda: to_fleet(self.world),
            self._retries,
            schedule=self._take_wish,
            check_worktree=self._workshop.check,
        )

    def _take_wish(self, wish: ScheduleWish) -> ScheduledCall:
        if self._scheduling is None:
            raise UsageError("Scheduler is not active in this session yet. Try again after the session has started.")
        return self._scheduling.take(wish)

    def _warn(self, text: str) -> None:
        if self._main is not None:
            self._main.bus.publish(Warned(run_id=self._main.setup.run_id, text=text))

    def _render(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage:
        # Of all the settings only this one matters here, and reports may come by the thousand.
        settings = FleetSettings(rollup_usage=self.world.crew.settings.rollup_child_usage)
        ports = FleetPorts(self.open_caller(self.manager.root.setup.run_id), lambda: settings)
        now_ms = self._clock.now_ms()
        return render_notification(runs, ports.measure, now_ms=now_ms, is_group=is_group, is_partial=is_partial)


def to_fleet(world: World) -> FleetSettings:
    """The settings of the delegation tools."""
    crew, paths = world.crew.settings, world.paths
    scope = world.loaded.settings.enabled_models if crew.scope_models else ()
    return FleetSettings(
        default_max_turns=crew.default_max_turns or None,
        default_join=crew.default_join_mode,
        scheduling=crew.scheduling_enabled and world.has_session,
        model_scope=tuple(scope),
        wait_timeout_s=crew.wait_timeout_seconds,
        limits=crew.limits.to_limits(),
        description_mode=crew.tool_description_mode,
        fallback_agent=crew.fallback_subagent,
        output_transcript=crew.output_transcript,
        transcript_dir=str(paths.project / ".pi" / "output"),
        rollup_usage=crew.rollup_child_usage,
        agent_dir=str(paths.agent_dir),
        template_files=_find_templates(world),
        read_template=lambda path: _read_template(world, path),
        grounds=to_grounds(world),
    )


def to_grounds(world: World) -> Grounds:
    """What paths in agents' files are relative to."""
    paths = world.paths
    return Grounds(str(paths.cwd), str(paths.project), str(paths.home or ""))


def _find_templates(world: World) -> tuple[Path, ...]:
    name, paths = "agent-tool-description.md", world.paths
    own = (paths.agent_dir / name,)
    return (paths.project / ".pi" / name, *own) if world.is_trusted and ".pi" in paths.configs else own


def _read_template(world: World, path: Path) -> str | None:
    bind = bind_user if path.parent == world.paths.agent_dir else bind_project
    data = read_bounded(path, MAX_TEMPLATE_BYTES, bind(world.paths, world.crew.settings.sandbox.hidden))
    return None if data is None else data[:MAX_TEMPLATE_BYTES].decode("utf-8", "replace")

"""The subagents of one main agent: Manager, backend, builder, notifications, schedules.

Opened only if the main agent may delegate or a run is requested.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from msgspec import Struct, structs

from retinue.app.delegation_tools import DelegationTools, to_grounds
from retinue.app.schedules import Schedules
from retinue.app.session_parts import SessionParts
from retinue.core.definition import Definition
from retinue.core.errors import UsageError
from retinue.core.messages import CustomMessage
from retinue.core.run import Reason, Run, Status
from retinue.core.tool_table import ASK, DISPATCH
from retinue.durable.local.backend import FILE, open_backend
from retinue.engine.build import RunBuilder, RunHost, choose_runner
from retinue.engine.cleanup import RunCleanup
from retinue.engine.clock import make_run_id
from retinue.engine.journal import CREW
from retinue.engine.limits import Bounds
from retinue.engine.manager import Manager, Watch
from retinue.engine.notify import IdleWaker
from retinue.engine.recovery import CrashOutcomes, StoredRuns, find_branches, has_left_copies, read_remains
from retinue.engine.remote_children import RemoteHost
from retinue.engine.run_config import REMOTE, RemoteRequest, RunConfig, RunPlan
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import find_session_dir
from retinue.engine.setup import Feature, RunSetup
from retinue.engine.warm_up import WarmUp
from retinue.features.place import survey_place
from retinue.features.transcript import Transcripts
from retinue.models.gate import LimitPause
from retinue.settings.run_config import build_run_config, find_depth_left, find_features
from retinue.surfaces.base import ChildTools
from retinue.surfaces.fleet.delivery import open_notifier
from retinue.surfaces.fleet.notification import render_notification
from retinue.surfaces.fleet.ports import FleetPorts, FleetSettings, ScheduledCall
from retinue.tools.ask_parent import AskParentTool
from retinue.tools.policy import Rights


class Subagents(Struct, frozen=True, eq=False):
    """Everything that the runs of a main agent need."""

    tools: DelegationTools
    manager: Manager
    builder: RunBuilder
    reactions: IdleWaker
    """Wakes the main agent when a report arrives while it is idle."""
    schedules: Schedules | None
    """None if the main agent has no session."""
    resources: AsyncExitStack
    """Released on close."""
    dismissed: int = 0
    """Number of earlier runs that were not restored."""
    was_paused: bool = False
    """Whether runs waited for a usage limit when the last process ended."""

    @property
    def ports(self) -> FleetPorts:
        return self.tools.open_fleet(self.tools.parts.run_id)

    def find_defaults(self, definition: Definition) -> dict[str, Any]:
        """Return request options from the settings and the agent file. Raises UsageError."""
        config = self.tools.parts.config
        return {
            "session_dir": find_session_dir(definition, to_grounds(config)),
            "keeps_session": definition.persist_session is not False,
            "isolation": "worktree" if definition.isolation == "worktree" else None,
            "context": definition.context or "none",
        }

    def apply_settings(self) -> None:
        """Apply the current settings, as far as possible in an open session."""
        settings, admission = self.tools.parts.config.crew.settings, self.manager.admission
        admission.bounds = structs.replace(
            admission.bounds, max_spawns=settings.max_spawns_per_tree, answer_s=settings.limits.answer_seconds
        )
        self.manager.resize(_find_width(self.tools))
        self.builder.limit_turns(settings.default_max_turns or None, settings.grace_turns)
        if self.schedules is not None:
            self.schedules.apply_settings()

    def schedule(self, text: str, **members: Any) -> ScheduledCall:
        """Schedule a call. Raises RetinueError."""
        if self.schedules is None:
            raise UsageError("Scheduler is not active in this session yet. Try again after the session has started.")
        return self.schedules.take(text, members)

    async def close(self) -> None:
        """Stop everything but runs that were left to continue; unfinished runs can be resumed."""
        self.reactions.close()
        if not self.manager.is_left:
            self.manager.stop_all()
        if self.manager.notifier is not None:
            self.manager.notifier.close()
        await asyncio.sleep(0)  # tasks that have a slot but have not begun must see that they are stopped
        await self.resources.aclose()

    async def ask_author(self, run_id: str, task: str) -> str:
        """Resume a run and wait for it, for a caller that is no agent; return what went wrong. Raises RetinueError.

        A run that an earlier process has resumed with this task, and that goes on or is done, is not resumed again.
        """
        self.reactions.spare(run_id)
        known = self.manager.find(run_id)
        is_good = known is not None and (not known.status.is_final or known.status is Status.COMPLETED)
        if not is_good or not self.manager.find_task(run_id).endswith(task):
            self.manager.resume(run_id, task)
        await self.manager.wait(run_id, None)
        self.manager.read(run_id)
        run = self.manager.find(run_id)
        outcome = None if run is None else run.outcome
        is_done = outcome is not None and outcome.status is Status.COMPLETED
        return "" if is_done else (outcome.error if outcome is not None else "") or "its run did not complete"

    def restrain_elsewhere(self, run_id: str, tools: Sequence[str], *, readonly: bool) -> None:
        """Revoke tools from a run and all below it in other processes; a run that cannot be notified is stopped."""
        manager, caller = self.manager, self.tools.open_caller(run_id)
        for run in manager.list_runs():
            is_below, live = run.id == run_id or caller.find_run(run.id) is not None, manager.live(run.id)
            if run.is_guest and run.id == run_id and not run.status.is_final:
                # The runs below it lose the tools with it. If it cannot be notified, its host run is stopped.
                is_said = manager.remote_children.speak(
                    run.id, "restrict", {"tools": list(tools), "readonly": readonly}
                )
                _ = is_said or manager.stop(manager.remote_children.find_host(run.id), Reason.PARENT)
            if not is_below or live is None:
                continue
            if not manager.hears(run.id):
                manager.stop(run.id, Reason.PARENT)
            elif isinstance(live, RemoteHost):
                live.restrict(tools, readonly=readonly)

    def judge_elsewhere(self) -> None:
        """Let remote runs ask this process about their calls from now on; runs that cannot are stopped."""
        for run in self.manager.list_runs():
            live = self.manager.live(run.id)
            if live is not None and not self.manager.hears(run.id):
                self.manager.stop(run.id, Reason.PARENT)
            elif isinstance(live, RemoteHost):
                live.demand_judgement()


async def open_subagents(delegation: DelegationTools, main: LiveRun, rights: Rights, *watchers: Watch) -> Subagents:
    """Open the subagents of a main agent and restore the runs that an earlier process left in its session.

    `rights` are those of the main agent; `watchers` observe every run.
    """
    parts, worktree_factory = delegation.parts, delegation.worktree_factory
    host, clock, settings = parts.host, parts.host.clock, parts.config.crew.settings
    # Restored runs start before the session has its `subagents`.
    subagents: Subagents
    tools = structs.replace(delegation, find=lambda: subagents)
    remains, dismissed = _read_remains(parts)
    config = _build_config(tools)
    survey = partial(survey_place, environment=host.environment)
    builder = RunBuilder(RunHost(clock, parts.child_models, survey, host.revoked, host.gates), config, root=rights)
    async with AsyncExitStack() as resources:
        resources.callback(worktree_factory.close)
        if tools.remote is not None:
            resources.push_async_callback(tools.remote.close)
        backend = await open_backend(
            parts.config.paths.own_dir / FILE,
            main,
            remains,
            choose=lambda run, request: choose_runner(config.find(run.agent, request.surface), request, config)[0],
            charge=builder.tree.leases.charge,
            warn=parts.warn,
            is_paused=main.limit_wait.pause is not None or bool(remains.pauses),
        )
        for pause in filter(lambda each: each.gate, remains.pauses.values()):
            host.gates.restore(LimitPause(pause.gate, pause.provider, pause.until_ms))
        resources.push_async_callback(backend.close)
        returning = backend.returning | backend.paused
        copies = await worktree_factory.tidy(returning) if has_left_copies(remains) else {}
        await find_branches(remains, returning, worktree_factory, main.setup.cwd)
        crash_outcomes = CrashOutcomes(main.session, clock, remains, copies)
        remains.drop_used(crash_outcomes.read_words)
        main.bus.listen(builder.tree.hear, pieces=False, kinds=builder.tree.hears)
        if parts.extensions.servers is not None:
            parts.extensions.servers.join(builder.tree.rights.admit)
        await backend.__aenter__()
        resources.push_async_callback(backend.__aexit__, None, None, None)
        transcripts = Transcripts(clock=clock, warn=parts.warn)
        reactions = IdleWaker(main, backend)
        manager = Manager(
            main,
            builder,
            backend,
            clock=clock,
            new_id=make_run_id,
            bounds=Bounds(
                _find_width(tools),
                find_depth_left(host.environment),
                max_spawns=settings.max_spawns_per_tree,
                answer_s=settings.limits.answer_seconds,
            ),
            open_notifier=lambda manager: open_notifier(
                manager, backend, partial(_render, tools), clock, reactions.on_report
            ),
            watchers=[*([] if parts.recorder is None else [parts.recorder.watch]), transcripts.watch, *watchers],
            # In a run that was sent here, questions to the user are about approvals only.
            has_user=lambda: host.questions.has_frontend and not host.is_child,
            is_blocked=builder.is_blocked,
        )
        resources.callback(host.gates.listen(lambda: manager.start_queued()))
        ports, publish = tools.open_fleet(parts.run_id), main.bus.publish
        schedules = Schedules(parts.config, main.session.id, ports, clock, publish) if parts.has_session else None
        was_paused, resources = bool(remains.pauses), resources.pop_all()
        subagents = Subagents(tools, manager, builder, reactions, schedules, resources, dismissed, was_paused)
    try:
        untold = manager.recover(remains, crash_outcomes.judge)
        RunCleanup(manager, backend, clock).open(untold)
        if schedules is not None:
            backend.start("scheduler", schedules.run())
    except BaseException:
        await subagents.close()
        raise
    return subagents


def _read_remains(parts: SessionParts) -> tuple[StoredRuns, int]:
    """Return the runs that an earlier process left; if others could have written the file, only their number."""
    remains = read_remains(parts.session.customs(CREW))
    if _is_own_session(parts) or not remains.runs:
        return remains, 0
    return StoredRuns(), len(remains.runs)


def _is_own_session(parts: SessionParts) -> bool:
    """Return whether the session's entries about earlier runs can be trusted."""
    session, config = parts.session, parts.config
    if session.path is None or parts.host.request.session.is_alone:
        return True
    is_fresh = not any(True for _ in session.customs(CREW))
    trusted_sessions = parts.host.open_trusted_sessions(config.paths, config.loaded)
    return trusted_sessions.judge(session.path, session.id, config.paths.cwd, is_fresh=is_fresh)


def _build_config(tools: DelegationTools) -> RunConfig:
    parts, remote = tools.parts, tools.remote
    config, guards = parts.config, parts.guards
    asked, is_narrowed = find_features(config.roster, tools.worktree_factory), config.is_narrowed
    # A dispatched run never dispatches.
    shared = {name: tool for name, tool in tools.make(parts.run_id).items() if name != DISPATCH}
    shared[ASK] = AskParentTool(lambda *asked: tools.find().manager.questions.ask(*asked))

    def list_features(plan: RunPlan) -> list[Feature]:
        own = ChildTools(lambda setup: tools.make(setup.run_id))
        from retinue.settings.verification import build_verification

        verified = build_verification(config, plan, parts.warn, parts.checkpoints)
        every = [*asked(plan), own, *guards.surround(plan), *plan.additions.features, verified]
        if parts.checkpoints is None:
            return every
        is_elsewhere = plan.runner in ("process", "pi")
        # A run on a worker changes nothing here.
        name, is_readonly = plan.definition.name, plan.rights.readonly or plan.runner == REMOTE
        return parts.checkpoints.surround(every, agent=name, is_elsewhere=is_elsewhere, is_readonly=is_readonly)

    run_config = build_run_config(
        config.roster,
        config.loaded.settings,
        parts.host.environment,
        tools={**parts.child_tools, **shared},
        files=config.files,
        list_features=list_features,
    )
    return structs.replace(
        run_config,
        orphan_dir=run_config.orphan_dir if tools.keeps_sessions else None,
        lease=parts.lease,
        warm_up=WarmUp(parts.host.clock) if config.crew.settings.warm_first else None,
        extend=parts.extensions.load_child,
        rules=guards.rules,
        # A run that was sent to another machine sends its own runs from there.
        runner=REMOTE if remote is not None and remote.is_usual else config.crew.settings.runner,
        asks=lambda: is_narrowed or guards.may_ask(),
        has_remote=remote is not None and not is_narrowed,
        send_out=partial(_send_out, tools),
    )


def _send_out(tools: DelegationTools, setup: RunSetup, remote_request: RemoteRequest) -> LiveRun:
    """Create a run that works in another process or on another machine."""
    parts = tools.parts
    if remote_request.runner == REMOTE and tools.remote is not None:
        return tools.remote.send(setup, remote_request, tools.find().manager)
    from retinue.engine.external.run import ProcessStarter  # slow import: most subagents work in this process
    from retinue.settings.run_config import build_process_context

    host = parts.host
    process_context = build_process_context(
        parts.config, parts.child_models, host.environment, parts.child_tools, setup.cwd
    )
    return ProcessStarter(process_context, host.clock, tools.find().manager.questions.ask).send(setup, remote_request)


def _find_width(tools: DelegationTools) -> int:
    return tools.parts.config.crew.settings.max_concurrent if tools.remote is None else tools.remote.find_width()


def _render(tools: DelegationTools, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage:
    parts = tools.parts
    # Only this setting is needed here, and there may be thousands of reports.
    settings = FleetSettings(rollup_usage=parts.config.crew.settings.rollup_child_usage)
    ports = FleetPorts(tools.open_caller(parts.run_id), lambda: settings)
    now_ms = parts.host.clock.now_ms()
    return render_notification(runs, ports.measure, now_ms=now_ms, is_group=is_group, is_partial=is_partial)

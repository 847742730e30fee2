"""Builds a run from a request: decides definition, runner, model, rights and limits once, then creates its setup.

Definitions, models and features come from a RunConfig. MUST NOT know settings, agent files or surfaces.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.definition import REMOTE, Definition
from retinue.core.errors import RetinueError, quote
from retinue.core.events import Event, RunForgotten, RunQueued, Warned
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Model
from retinue.core.run import Grant, Run
from retinue.core.tool import Tool
from retinue.engine.budget import BudgetedModel, Leases
from retinue.engine.calls import CallHook
from retinue.engine.fork import take_fork
from retinue.engine.limit_wait import Fallbacks
from retinue.engine.limits import Limits, choose_limits, fill_limits
from retinue.engine.model_choice import ModelSource, NamedModel, choose_level, choose_model, find_model, unwrap
from retinue.engine.prompt import (
    Identity,
    Place,
    PlaceCache,
    build_append,
    build_codingcode,
    build_fork,
    build_replace,
    build_sticky,
    build_subagent,
    inherit_context,
    render_prompt,
    render_tag,
)
from retinue.engine.request import RunRequest
from retinue.engine.rights import RevokedTools, RevokedToolsHook, RightsTable, decide_root, list_doubts
from retinue.engine.run_config import HERE, Additions, RemoteRequest, RunConfig, Runner, RunPlan
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import SessionOpener
from retinue.engine.setup import Feature, RunSetup
from retinue.models.gate import Gates
from retinue.models.thinking_levels import clamp_level
from retinue.tools.policy import Rights, Terms
from retinue.tools.registry import rename_tools


class RunHost(Struct, frozen=True):
    """What this process provides for all runs."""

    clock: Clock
    models: ModelSource
    survey: Callable[[Path], Awaitable[Place]]
    """Returns facts about a directory, such as its git branch."""
    revoked: RevokedTools = field(default_factory=RevokedTools)
    """What was revoked from runs since they began."""
    gates: Gates | None = None
    """Where runs wait for usage limits."""


class RunTree:
    """State that is kept for the runs of one main agent."""

    def __init__(self, host: RunHost, config: RunConfig, root: Rights) -> None:
        """`root` are the rights of the main agent."""
        self._revoked = host.revoked
        self._asked_here: set[str] = set()
        """Runs that were first requested in this process."""
        self.rights = RightsTable(config.policy, config.tools, host.revoked, root, self._asked_here)
        self.leases = Leases(config.lease)
        self.sessions = SessionOpener(host.clock, config.orphan_dir)
        self.places = PlaceCache(host.survey, host.clock)

    hears = (RunQueued, RunForgotten)

    def hear(self, event: Event) -> None:
        """Track new runs, and drop the state of forgotten ones."""
        if isinstance(event, RunQueued) and event.run.attempt == 1:
            self._asked_here.add(event.run_id)
        if isinstance(event, RunForgotten):
            self._asked_here.discard(event.run_id)
            self._revoked.forget(event.run_id)
            self.rights.forget(event.run_id)
            self.leases.forget(event.run_id)
            self.sessions.forget(event.run_id)


class ParentRun(Struct, frozen=True):
    """The run that requests another one, with the state of all runs."""

    live: LiveRun
    tree: RunTree


async def build_run(
    host: RunHost, config: RunConfig, request: RunRequest, parent: ParentRun | None = None, *, run: Run
) -> RunSetup:
    """Decide everything about a run and return its setup; the caller releases its additions. Raises RetinueError.

    A main agent has no parent: the config contains what it would get from one.
    """
    above = config.find_main() if parent is None else parent.live.setup
    definition = config.find(run.agent, request.surface)
    warn = partial(_warn, config, definition) if parent is None else partial(_warn_parent, parent.live, run)
    for text in config.find_faults(definition.name):
        warn(text)
    cwd = Path(request.cwd) if request.cwd else above.cwd
    if request.cwd and not cwd.is_dir():
        raise RetinueError(f"working directory {quote(request.cwd, 200)}: no such directory")
    wanted = definition if parent is None else parent.tree.rights.narrow(run, request, definition)
    additions = await config.extend(wanted, request)
    try:
        plan, remarks = _plan_run(host, config, definition, request, parent, run, cwd, additions)
        for text in remarks:
            warn(text)
        tools = _choose_tools(config, plan, parent)
        if parent is not None:
            host.revoked.place(run.id, run.parent_id)
        find_tool = partial(_find_own_name, plan.rights)
        charge = _find_charge(config, plan, parent, run)
        return RunSetup(
            **_begin_talk(config, plan, parent, run, warn),
            run_id=run.id,
            cwd=cwd,
            name="" if parent is None else f"{definition.name}#{run.id[:8]}",
            model=charge(plan.model),
            fallbacks=_find_fallbacks(host, config, definition, charge, warn),
            thinking=plan.thinking,
            tools=tools,
            refusals=plan.rights.refusals if definition.name else config.find_main().refusals,
            sections=await _build_sections(config, plan, tools, parent, run),
            limits=plan.limits,
            retry=config.retry,
            compaction=config.compaction(plan.model.info.ref),
            environment=_build_environment(config, request, parent, run),
            redact=above.redact,
            spill_dir=above.spill_dir,
            steering_mode=above.steering_mode,
            follow_up_mode=above.follow_up_mode,
            hooks=(RevokedToolsHook(host.revoked, run.id, find_tool), *additions.hooks),
            features=tuple(config.list_features(plan)),
            plan=plan,
            gates=host.gates,
            warm_up=None if parent is None else config.warm_up,
        )
    except BaseException:
        additions.release()
        raise


def _plan_run(
    host: RunHost,
    config: RunConfig,
    definition: Definition,
    request: RunRequest,
    parent: ParentRun | None,
    run: Run,
    cwd: Path,
    additions: Additions,
) -> tuple[RunPlan, list[str]]:
    """Decide runner, model, rights and limits; return them with the warnings.

    The runner is chosen before the model, because `pi` may know models that are unknown here.
    """
    runner, reason = (HERE[0], "") if parent is None else choose_runner(definition, request, config)
    chosen = _choose_model(host, config, definition, request, parent, runner)
    lack = "" if parent is None else _find_fork_lack(definition, request, runner, chosen.model, parent.live)
    level, level_remark = chosen.thinking, ""
    is_fork = request.context == "fork" and parent is not None and not lack
    if is_fork and parent is not None and level != parent.live.setup.thinking:
        level = parent.live.setup.thinking
        level_remark = f"a fork has the thinking level of the agent that started it, {level}"
    rights, terms = _decide_rights(config, definition, request, parent, run, additions)
    plan = RunPlan(
        definition=definition,
        request=request,
        runner=runner,
        model=chosen.model,
        thinking=clamp_level(chosen.model.info, level),
        named=chosen.named,
        rights=rights,
        terms=terms,
        limits=_choose_limits(config, definition, request, parent),
        cwd=cwd,
        tools={**config.tools, **additions.tools},
        branch=run.branch,
        additions=additions,
        is_fork=is_fork,
    )
    return plan, list(filter(None, (*list_doubts(rights), chosen.remark, reason, lack, level_remark)))


def _find_fork_lack(definition: Definition, request: RunRequest, runner: Runner, model: Model, parent: LiveRun) -> str:
    """Return why a run that is to be a fork gets a summary; empty if it can be one."""
    above = parent.setup.model.info.ref
    lack = ""
    if request.context != "fork":
        return ""
    if model.info.ref != above:
        lack = f"its model is {model.info.ref}, not {above}"
    elif definition.completion == "finalize":
        lack = "it needs the tool subagent_finalize, which the agent that started it does not have"
    elif runner not in (*HERE, "process") or (runner == "process" and not request.keeps_session):
        lack = f"runner {runner} cannot continue the request" + (" without a session" if runner == "process" else "")
    return f"context fork is not possible: {lack}; it gets a summary of the conversation" if lack else ""


def _begin_talk(
    config: RunConfig, plan: RunPlan, parent: ParentRun | None, run: Run, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Return what a run begins its conversation with."""
    if parent is None:
        return {"is_fork": config.find_main().is_fork}
    begun = {"cache_key": parent.live.cache_key, "is_fork": plan.is_fork, "tag": _render_tag(config, plan, run)}
    if plan.request.context != "fork" or run.started_ms:
        return begun
    fork = take_fork(parent.live, plan.request.call_id)
    if plan.is_fork and fork is None:
        warn("context fork: there is no conversation yet")
    if plan.is_fork:
        return {**begun, "fork": fork}
    return {**begun, "preface": "" if fork is None else inherit_context(fork.messages)}


def _render_tag(config: RunConfig, plan: RunPlan, run: Run) -> str:
    rules, definition = config.policy.find_surface(plan.request.surface), plan.definition
    # An earlier attempt was told; prompts of other systems have no tag.
    if (run.attempt > 1 and run.started_ms) or rules.prompt != "definition" or definition.dialect != "pi":
        return ""
    return render_tag(_identify(config, plan, run))


def _identify(config: RunConfig, plan: RunPlan, run: Run) -> Identity:
    max_depth = config.policy.find_surface(plan.request.surface).max_depth
    above = run.parent_id if run.depth > 1 else config.policy.base_id
    return Identity(plan.definition.name, run.id, run.level + config.policy.base_depth, max_depth, above)


def build_judged(above: RunSetup, run_id: str, hooks: Sequence[CallHook], features: Sequence[Feature]) -> RunSetup:
    """Return the setup of a run started by a remote run: only what judges its calls here."""
    return above.change(
        run_id=run_id,
        model=unwrap(above.model),
        name="",
        tools={},
        refusals={},
        sections={},
        limits=Limits(),
        environment={},
        hooks=hooks,
        redact=None,
        features=features,
        plan=None,
    )


class RunBuilder:
    """Builds the runs of one main agent, opens their sessions and closes them."""

    def __init__(self, host: RunHost, config: RunConfig, *, root: Rights) -> None:
        self._host = host
        self._config = config
        self.tree = RunTree(host, config, root)

    @asynccontextmanager
    async def open(self, run: Run, request: RunRequest, parent: LiveRun) -> AsyncIterator[LiveRun]:
        """Build a run; leaving the context closes its session and releases its additions."""
        setup = await build_run(self._host, self._config, request, ParentRun(parent, self.tree), run=run)
        plan = setup.find_plan()
        try:
            live = self._open(setup, plan, run, parent)
            session = live.session
            for listener, pieces in plan.additions.listeners:
                live.bus.listen(listener, pieces=pieces)
            self.tree.rights.remember(run.id, plan.rights)
            try:
                if not session.name:
                    info = setup.model.info
                    chosen = (info.provider, info.id)
                    live.journal.write(lambda: session.append_opening(setup.name, chosen, setup.thinking))
                yield live
            finally:
                live.journal.flush()
                if session.path is not None:
                    session.close()
        finally:
            plan.additions.release()

    def is_blocked(self, run: Run, request: RunRequest, parent: LiveRun) -> bool:
        """Return whether a usage limit of its provider is reached, so that it need not start yet."""
        gates, config = self._host.gates, self._config
        if gates is None or not gates.list_pauses():
            return False
        try:
            definition = config.find(run.agent, request.surface)
            named = find_model(definition, request, self._host.models)
        except RetinueError:
            return False  # reported when the run is built
        if config.fallback_models if definition.fallback_models is None else definition.fallback_models:
            return False
        info = parent.setup.model.info if named.found is None else named.found.info
        if info.ref != parent.setup.model.info.ref:
            # Only an opened model knows its key.
            return any(pause.provider == info.provider for pause in gates.list_pauses())
        return gates.find_pause(info) is not None

    def find_grant(self, run_id: str) -> Grant:
        return self.tree.rights.find_grant(run_id)

    def limit_turns(self, default_max_turns: int | None, grace_turns: int) -> None:
        limits = replace(self._config.policy.limits, max_turns=default_max_turns, grace_turns=grace_turns)
        policy = structs.replace(self._config.policy, limits=limits)
        self._config = structs.replace(self._config, policy=policy)

    def _open(self, setup: RunSetup, plan: RunPlan, run: Run, parent: LiveRun) -> LiveRun:
        """Create the live run, here or in a process of its own, which then writes the session alone."""
        config, request, runner = self._config, plan.request, plan.runner
        if runner in HERE or config.send_out is None:
            session = self.tree.sessions.open(run, request, parent.session, plan.cwd)
            if session.damage:
                _warn_parent(parent, run, str(session.damage))
            if setup.fork is not None and not len(session):
                setup.fork.write(session, self._host.clock, waits=True)
            return LiveRun(setup, session, clock=self._host.clock)
        path, _ = self.tree.sessions.find_place(run, request, parent.session)
        if path is None and run.attempt > 1 and runner != REMOTE:
            raise RetinueError(f"run {run.id!r} cannot be resumed: its process stored no session")
        if setup.fork is not None and path is not None and not path.exists():
            # Its process continues what this one has written.
            session = self.tree.sessions.open(run, request, parent.session, plan.cwd)
            setup.fork.write(session, self._host.clock, waits=False)
            session.close()
        lease = self.tree.leases.find(run.id)
        if runner == "pi" and lease.is_limited and not config.policy.allow_pi:
            raise RetinueError(
                f"agent {quote(run.agent)}: runner pi cannot enforce the budget ({lease.render_rest()}); "
                "use the runner process, or set budget.allowPi to true in your subagents.json"
            )
        remote_request = RemoteRequest(
            *(runner, plan.definition, request, plan.rights, str(path or ""), lease, run.attempt, run.branch),
            parent_session=str(parent.session.path or ""),
            named=plan.named,
            is_bare=config.policy.find_surface(request.surface).is_bare,
        )
        return config.send_out(setup, remote_request)


def choose_runner(definition: Definition, request: RunRequest, config: RunConfig) -> tuple[Runner, str]:
    """Return the runner of a run, and why it is not the wanted one; empty if it is, or if that is expected."""
    wanted = definition.runner or config.runner
    if wanted in ("process", "pi") and config.policy.find_surface(request.surface).asks_each_call:
        return "inprocess", ""
    runner, reason = wanted, f"runner {wanted} is not available to it"
    if runner == "pi" and definition.source == "project" and config.runner != "pi":
        runner = "process"  # pi starts its commands outside our sandbox, which a project must not choose
    # MCP servers are configured on this machine; another machine may not have them.
    if runner == REMOTE and (not config.has_remote or definition.mcp_servers):
        runner = "inprocess"
        reason = "its MCP servers are configured on this machine" if config.has_remote else reason
    if runner == "process" and config.asks():
        runner = "inprocess"
    return runner, "" if runner == wanted else f"{reason}; using runner {runner}"


class _ChosenModel(Struct, frozen=True):
    model: Model
    thinking: ThinkingLevel
    named: NamedModel = NamedModel()
    remark: str = ""


def _choose_model(
    host: RunHost,
    config: RunConfig,
    definition: Definition,
    request: RunRequest,
    parent: ParentRun | None,
    runner: Runner,
) -> _ChosenModel:
    if parent is None:
        return _ChosenModel(*config.find_main().choose_model(definition))
    above = parent.live.setup
    named = find_model(definition, request, host.models)
    model, remark = choose_model(
        *(named, definition, request, above.model, host.models),
        accepts_unknown=runner == "pi",
        is_lenient=config.policy.find_surface(request.surface).is_lenient,
    )
    level = choose_level(request.thinking, definition.thinking, named.thinking) or above.thinking
    return _ChosenModel(model, level, named, remark)


def _decide_rights(
    config: RunConfig,
    definition: Definition,
    request: RunRequest,
    parent: ParentRun | None,
    run: Run,
    additions: Additions,
) -> tuple[Rights, Terms]:
    if parent is not None:
        return parent.tree.rights.decide(run, request, definition, additions)
    if not definition.name:
        return Rights(()), Terms(available={})
    return decide_root(config.policy, definition, config.tools, additions)


def _choose_limits(config: RunConfig, definition: Definition, request: RunRequest, parent: ParentRun | None) -> Limits:
    if parent is None:
        return fill_limits(config.find_main().limits, definition)
    return choose_limits(definition, request.limits, config.policy.limits, is_isolated=request.isolation is not None)


def _choose_tools(config: RunConfig, plan: RunPlan, parent: ParentRun | None) -> Mapping[str, Tool]:
    names = {name: _find_own_name(plan.rights, name) for name in plan.rights.allowed}
    if plan.is_fork and parent is not None:
        above, own = parent.live.setup, set(names.values())
        targets = {} if above.plan is None else above.plan.rights.targets
        # The model sees the list of the parent, with its names.
        names = {name: targets.get(name, name) for name in above.tools if targets.get(name, name) in own}
    tools = rename_tools(plan.tools, names)
    return tools if parent is not None else dict(config.find_main().choose_tools(plan, tools))


def _find_own_name(rights: Rights, name: str) -> str:
    """Return the original name of a tool that the model knows by another name."""
    return rights.targets.get(name, name)


def _find_charge(config: RunConfig, plan: RunPlan, parent: ParentRun | None, run: Run) -> Callable[[Model], Model]:
    """Return what charges the use of a model to the run's budget."""
    if parent is None:
        return config.find_main().charge
    # A scheduled run is not part of the last prompt.
    above = None if plan.request.skips_queue else run.parent_id
    lease = parent.tree.leases.open(run.id, above, plan.limits.tokens, plan.limits.cost_usd)
    return lambda model: BudgetedModel(model, lease) if lease.is_limited else model


def _find_fallbacks(
    host: RunHost,
    config: RunConfig,
    definition: Definition,
    charge: Callable[[Model], Model],
    warn: Callable[[str], None],
) -> Fallbacks:
    """Return the models that may replace the run's own; a name that cannot be used is reported when it is needed."""
    names, faults = definition.fallback_models, set[str]()
    # Like a model in a file of the user or of a trusted project: only an exact name may leave the provider.
    is_choice = definition.source != "builtin" or names is None

    def open_model(name: str) -> Model | None:
        try:
            return charge(host.models.open(host.models.resolve(name, is_choice=is_choice).info))
        except RetinueError as error:
            if name not in faults:
                warn(f"fallbackModels: {error}")
            faults.add(name)
            return None

    asked = config.fallback_models if names is None else names
    return Fallbacks([partial(open_model, name) for name in asked], config.fallback_after_s)


def _build_environment(config: RunConfig, request: RunRequest, parent: ParentRun | None, run: Run) -> Mapping[str, str]:
    if parent is None:
        return config.find_main().environment
    depth, max_depth = run.level + config.policy.base_depth, config.policy.find_surface(request.surface).max_depth
    return {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": str(depth), "PI_SUBAGENT_MAX_DEPTH": str(max_depth)}


async def _build_sections(
    config: RunConfig, plan: RunPlan, tools: Mapping[str, Tool], parent: ParentRun | None, run: Run
) -> Mapping[str, str]:
    definition = plan.definition
    if parent is None:
        return config.find_main().build_sections(definition, tools)
    rules, identity = config.policy.find_surface(plan.request.surface), _identify(config, plan, run)
    if rules.prompt == "task" and definition.dialect != "sticky":
        names, readonly = plan.rights.allowed, plan.rights.readonly
        return build_subagent(definition, identity, tools=names, task=plan.request.task, readonly=readonly)
    place = await parent.tree.places.find(plan.cwd)
    if definition.dialect == "sticky":
        return build_sticky(definition, place, context_files=config.context_files)
    if rules.prompt == "profile" or definition.dialect == "codingcode":
        return build_codingcode(definition, place, rules=[*config.rules, *(text for _, text in config.context_files)])
    if plan.is_fork:
        return build_fork(definition, place)
    if definition.prompt_mode == "append":
        above = {} if parent.live.inherited is None else parent.live.inherited.head.sections
        return build_append(definition, place, parent=render_prompt({**above, **parent.live.setup.sections}))
    return build_replace(definition, place)


def _warn(config: RunConfig, definition: Definition, text: str) -> None:
    config.find_main().warn(f"agent {quote(definition.name)}: {text}")


def _warn_parent(parent: LiveRun, run: Run, text: str) -> None:
    parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {text}"))

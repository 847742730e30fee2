"""Makes a run out of a definition, a request and the run that asks: model, rights, prompt, limits, session.

What it needs from above (which definitions there are, how a model is opened, which features surround a run) is handed
in as a Kit. Must not know settings, files of definitions or any surface's results.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, quote
from retinue.core.events import Event, RunForgotten, RunQueued, Warned
from retinue.core.run import Outcome, Run
from retinue.engine.budget import BudgetedModel, Leases
from retinue.engine.child_prompt import (
    Identity,
    build_append,
    build_codingcode,
    build_replace,
    build_sticky,
    build_subagent,
)
from retinue.engine.choosing import choose_level, choose_limits, choose_model, choose_runner, explain_runner
from retinue.engine.extras import Extras
from retinue.engine.fitting import Fitting
from retinue.engine.kit import Kit
from retinue.engine.place_facts import Surveys
from retinue.engine.prompt import render_prompt
from retinue.engine.remote_request import HERE, REMOTE, Errand
from retinue.engine.request import RunRequest
from retinue.engine.revoked_tools import Restrained
from retinue.engine.rights import CrewRights, list_doubts
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import Keeper
from retinue.engine.setup import RunSetup
from retinue.models.thinking_levels import clamp_level
from retinue.tools.policy import Rights
from retinue.tools.renamed import rename_tools


class Outfitter:
    """Outfits the runs of one main agent."""

    def __init__(self, kit: Kit, *, root: Rights, clock: Clock) -> None:
        """`root` are the rights of the main agent."""
        self._kit = kit
        self._clock = clock
        self._surveys = Surveys(kit.survey, clock)
        self._asked_here: set[str] = set()
        """Runs that nobody knew before this process."""
        self.rights = CrewRights(kit, root, self._asked_here)
        self.leases = Leases(kit.lease)
        self._keeper = Keeper(clock, kit.orphan_dir)

    async def outfit(
        self, run: Run, request: RunRequest, parent: LiveRun, work: Callable[[LiveRun], Awaitable[Outcome]]
    ) -> Outcome:
        """Build the run with everything around it, let `work` do it, undo everything, return the outcome."""
        definition = self._kit.find(run.agent, request.surface)
        for text in self._kit.find_faults(definition.name):
            parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {text}"))
        cwd = Path(request.cwd) if request.cwd else parent.setup.cwd
        if request.cwd and not cwd.is_dir():
            raise RetinueError(f"working directory {quote(request.cwd, 200)}: no such directory")
        extras = await self._kit.extend(self.rights.narrow(run, request, definition), request)
        try:
            return await self._outfit(run, request, parent, work, definition, cwd, extras)
        finally:
            extras.release()

    async def _outfit(
        self,
        run: Run,
        request: RunRequest,
        parent: LiveRun,
        work: Callable[[LiveRun], Awaitable[Outcome]],
        definition: Definition,
        cwd: Path,
        extras: Extras,
    ) -> Outcome:
        rights, terms = self.rights.decide(run, request, definition, extras)
        for text in list_doubts(rights):
            parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {text}"))
        tools = {**self._kit.tools, **extras.tools}
        fitting = Fitting(definition, request, rights, terms, cwd, tools, run.branch, extras)
        setup = await self._set_up(run, request, parent, fitting)
        self._kit.restraint.place(run.id, run.parent_id)
        live = self._make_live(run, parent, fitting, setup)
        session = live.session
        for listener, pieces in extras.listeners:
            live.bus.listen(listener, pieces=pieces)
        self.rights.remember(run.id, rights)
        try:
            if not session.name:
                info = setup.model.info
                chosen = (info.provider, info.id)
                live.journal.write(lambda: session.append_opening(setup.name, chosen, setup.thinking))
            return await work(live)
        finally:
            live.journal.flush()
            if session.path is not None:
                session.close()

    def _make_live(self, run: Run, parent: LiveRun, fitting: Fitting, setup: RunSetup) -> LiveRun:
        """The live side of a run, here or in a process of its own, which then keeps the session alone."""
        definition, request, kit = fitting.definition, fitting.request, self._kit
        runner = choose_runner(definition, request, kit)
        if reason := explain_runner(definition, request, kit):
            parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {reason}"))
        if runner in HERE or kit.send_out is None:
            session = self._keeper.open(run, request, parent.session, fitting.cwd)
            if session.damage:
                parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {session.damage}"))
            return LiveRun(setup, session, clock=self._clock)
        path, _ = self._keeper.find_place(run, request, parent.session)
        if path is None and run.attempt > 1 and runner != REMOTE:
            raise RetinueError(f"run {run.id!r} worked in a process that kept no session: it cannot be resumed")
        lease = self.leases.find(run.id)
        if runner == "pi" and lease.is_limited and not kit.policy.allow_pi:
            raise RetinueError(
                f"agent {quote(run.agent)}: a pi cannot be held to a budget ({lease.render_rest()}); use the runner "
                "process, or set budget.allowPi in your subagents.json"
            )
        errand = Errand(
            runner,
            definition,
            request,
            fitting.rights,
            str(path or ""),
            lease,
            run.attempt,
            run.branch,
            str(parent.session.path or ""),
        )
        return kit.send_out(setup, errand)

    def limit_turns(self, default_max_turns: int | None, grace_turns: int) -> None:
        """Change the turns of runs that start from now on."""
        policy = replace(self._kit.policy, default_max_turns=default_max_turns, grace_turns=grace_turns)
        self._kit = replace(self._kit, policy=policy)

    hears = (RunQueued, RunForgotten)

    def hear(self, event: Event) -> None:
        """Know which runs are new, and keep nothing about those that are forgotten."""
        if isinstance(event, RunQueued) and event.run.attempt == 1:
            self._asked_here.add(event.run_id)
        if isinstance(event, RunForgotten):
            self._asked_here.discard(event.run_id)
            self._kit.restraint.forget(event.run_id)
            self.rights.forget(event.run_id)
            self.leases.forget(event.run_id)
            self._keeper.forget(event.run_id)

    async def _set_up(self, run: Run, request: RunRequest, parent: LiveRun, fitting: Fitting) -> RunSetup:
        definition, rights, kit = fitting.definition, fitting.rights, self._kit
        is_pi = choose_runner(definition, request, kit) == "pi"
        model, wanted, remark = choose_model(definition, request, parent.setup.model, kit.models, is_foreign=is_pi)
        if remark:
            parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {remark}"))
        level = choose_level(request.thinking, definition.thinking, wanted) or parent.setup.thinking
        depth, max_depth = run.level + kit.policy.base_depth, kit.policy.find_depth(request.surface)
        depths = {"PI_SUBAGENT_DEPTH": depth, "PI_SUBAGENT_MAX_DEPTH": max_depth}
        limits = choose_limits(definition, request, kit.policy)
        # What the clock starts is no part of the last prompt.
        above = None if request.skips_queue else run.parent_id
        lease = self.leases.open(run.id, above, limits.tokens, limits.cost_usd)
        guard = Restrained(kit.restraint, run.id, lambda name: rights.targets.get(name, name))
        return RunSetup(
            run_id=run.id,
            cwd=fitting.cwd,
            name=f"{definition.name}#{run.id[:8]}",
            model=BudgetedModel(model, lease) if lease.is_limited else model,
            thinking=clamp_level(model.info, level),
            tools=rename_tools(fitting.tools, {name: rights.targets.get(name, name) for name in rights.allowed}),
            refusals=rights.refusals,
            sections=await self._build_sections(run, parent, fitting),
            limits=limits,
            retry=kit.retry,
            compaction=kit.compaction(model.info.ref),
            environment={"PI_SUBAGENT_CHILD": "1", **{name: str(value) for name, value in depths.items()}},
            redact=parent.setup.redact,
            spill_dir=parent.setup.spill_dir,
            steering_mode=parent.setup.steering_mode,
            follow_up_mode=parent.setup.follow_up_mode,
            hooks=(guard, *fitting.extras.hooks),
            features=(*kit.list_features(fitting), *fitting.extras.features),
        )

    async def _build_sections(self, run: Run, parent: LiveRun, fitting: Fitting) -> dict[str, str]:
        definition, request, kit = fitting.definition, fitting.request, self._kit
        max_depth = kit.policy.find_depth(request.surface)
        above = run.parent_id if run.depth > 1 else ""
        identity = Identity(definition.name, run.id, run.level + kit.policy.base_depth, max_depth, above)
        if request.surface == "subagent" and definition.dialect != "sticky":
            names, readonly = fitting.rights.allowed, fitting.rights.readonly
            return build_subagent(definition, identity, tools=names, task=request.task, readonly=readonly)
        place = await self._surveys.find(fitting.cwd)
        if definition.dialect == "sticky":
            return build_sticky(definition, place, context_files=kit.context_files)
        if request.surface == "dispatch" or definition.dialect == "codingcode":
            return build_codingcode(definition, place, rules=[*kit.rules, *(text for _, text in kit.context_files)])
        if definition.prompt_mode == "append":
            return build_append(definition, identity, place, parent=render_prompt(parent.setup.sections))
        return build_replace(definition, identity, place)

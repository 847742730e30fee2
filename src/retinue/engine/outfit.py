"""Makes a run out of a definition, a request and the run that asks: model, rights, prompt, limits, session.

What it needs from above (which definitions there are, how a model is opened, which features surround a run) is handed
in as a Kit. Must not know settings, files of definitions or any surface's results.
"""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from msgspec import structs

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, quote
from retinue.core.events import Event, RunForgotten, RunQueued, Warned
from retinue.core.messages import Usage
from retinue.core.run import Grant, Outcome, Run
from retinue.definitions.toolnames import KNOWN_TOOLS
from retinue.engine.budget import BudgetedModel, Lease
from retinue.engine.childprompt import (
    Identity,
    build_append,
    build_codingcode,
    build_replace,
    build_sticky,
    build_subagent,
)
from retinue.engine.choosing import choose_level, choose_limits, choose_model, choose_runner
from retinue.engine.errand import HERE, Errand
from retinue.engine.extras import Extras
from retinue.engine.fitting import Fitting
from retinue.engine.keeping import Keeper
from retinue.engine.kit import Kit
from retinue.engine.prompt import render_prompt
from retinue.engine.request import RunRequest
from retinue.engine.restraint import Restrained
from retinue.engine.runner import LiveRun
from retinue.engine.setup import RunSetup
from retinue.engine.survey import Surveys
from retinue.models.thinking import clamp_level
from retinue.tools.policy import SUBAGENT_READONLY, Rights, Terms, decide_tools, is_readonly, narrow_rights
from retinue.tools.renamed import rename_tools
from retinue.tools.selectors import Offer


class Outfitter:
    """Outfits the runs of one main agent."""

    def __init__(self, kit: Kit, *, root: Rights, clock: Clock) -> None:
        """`root` are the rights of the main agent."""
        self._kit = kit
        self._root = root
        self._clock = clock
        self._surveys = Surveys(kit.survey, clock)
        self._offers = {name: Offer(tool.effect) for name, tool in kit.tools.items()}
        # Runs that start together are mostly alike: what was worked out for the last one is often the same.
        self._decided: tuple[Definition, Terms, Rights] | None = None
        self._granted: tuple[Rights, Grant] | None = None
        self._narrowed: tuple[Rights, Grant | None, Rights] | None = None
        self._rights: dict[str, Rights] = {}
        self._admitted: tuple[str, ...] = ()
        self._asked_here: set[str] = set()
        """Runs that this process was asked for: what the main agent gets while they wait is theirs, too."""
        self._leases: dict[str, Lease] = {}
        """Of every run so far: what one had bounds its children, and itself when it is resumed."""
        self._keeper = Keeper(clock, kit.orphan_dir)

    async def outfit(
        self, run: Run, request: RunRequest, parent: LiveRun, work: Callable[[LiveRun], Awaitable[Outcome]]
    ) -> Outcome:
        """Build the run with everything around it, let `work` do it, undo everything, return the outcome."""
        definition = self._kit.find(run.agent, request.surface)
        cwd = Path(request.cwd) if request.cwd else parent.setup.cwd
        if request.cwd and not cwd.is_dir():
            raise RetinueError(f"working directory {quote(request.cwd, 200)}: no such directory")
        extras = await self._kit.extend(self._narrow(run, request, definition), request)
        try:
            return await self._outfit(run, request, parent, work, definition, cwd, extras)
        finally:
            extras.release()

    def _narrow(self, run: Run, request: RunRequest, definition: Definition) -> Definition:
        """The definition as read-only as its run will be: what is started for it must be no wider."""
        terms = Terms(available={}, parent=self._find_bound(run, request), allow_write=request.allow_write)
        if definition.readonly or not is_readonly(definition, terms):
            return definition
        return structs.replace(definition, readonly=True)

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
        rights, terms = self.decide_rights(run, request, definition, extras)
        self._warn(run, rights, parent)
        tools = {**self._kit.tools, **extras.tools}
        fitting = Fitting(definition, request, rights, terms, cwd, tools, run.branch, extras)
        setup = await self._set_up(run, request, parent, fitting)
        self._kit.restraint.place(run.id, run.parent_id)
        live = self._make_live(run, parent, fitting, setup)
        session = live.session
        for listener, pieces in extras.listeners:
            live.bus.listen(listener, pieces=pieces)
        self._rights[run.id] = rights
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

    def admit(self, names: Iterable[str]) -> None:
        """Tools that the main agent has got since: its runs may have them, too."""
        new = [name for name in names if name not in self._root.tools]
        self._root = structs.replace(self._root, allowed=(*self._root.allowed, *new)) if new else self._root
        self._admitted += tuple(new)

    def _make_live(self, run: Run, parent: LiveRun, fitting: Fitting, setup: RunSetup) -> LiveRun:
        """The live side of a run, here or in a process of its own, which then keeps the session alone."""
        definition, request, kit = fitting.definition, fitting.request, self._kit
        runner = choose_runner(definition, request, kit)
        if runner != (wanted := definition.runner or kit.runner) and request.surface != "dispatch":
            text = f"agent {quote(run.agent)}: runner {wanted} is not open to it; it runs as {runner}"
            parent.bus.publish(Warned(run_id=run.id, text=text))
        if runner in HERE or kit.send_out is None:
            is_new = run.id in self._asked_here
            session = self._keeper.open(run, request, parent.session, fitting.cwd, is_new=is_new)
            return LiveRun(setup, session, clock=self._clock)
        path, _ = self._keeper.find_place(run, request, parent.session)
        if path is None and run.attempt > 1 and runner != "cluster":
            raise RetinueError(f"run {run.id!r} worked in a process that kept no session: it cannot be resumed")
        errand = Errand(
            runner,
            definition,
            request,
            fitting.rights,
            str(path or ""),
            self._leases[run.id],
            run.attempt,
            run.branch,
        )
        return kit.send_out(setup, errand)

    def decide_rights(
        self, run: Run, request: RunRequest, definition: Definition, extras: Extras | None = None
    ) -> tuple[Rights, Terms]:
        """The rights of a run, never more than its parent's, and what decided them."""
        policy = self._kit.policy
        is_subagent = request.surface == "subagent"
        terms = Terms(
            available=self._offers if extras is None else {**self._offers, **extras.offers},
            parent=self._find_bound(run, request),
            allow_write=request.allow_write,
            readonly_set=SUBAGENT_READONLY if is_subagent else None,
            readonly_bash=policy.readonly_bash,
            is_exact=is_subagent,
            has_lsp=policy.has_lsp,
            user_denied=policy.denied,
            may_nest=run.level + policy.base_depth < policy.find_depth(request.surface),
            isolated=request.isolated,
            always_exposed=policy.always_exposed,
            extensions=None if extras is None else extras.found,
            failed=frozenset() if extras is None else extras.failed,
        )
        # To find that out takes a while, and starts programs: only runs to which it matters ask.
        if is_readonly(definition, terms):
            is_confined, confinement = (policy.judge or policy.tell)()
            terms = structs.replace(terms, is_confined=is_confined, confinement=confinement)
        if self._decided is None or self._decided[0] is not definition or self._decided[1] != terms:
            self._decided = (definition, terms, decide_tools(definition, terms))
        return self._decided[2], terms

    hears = (RunQueued, RunForgotten)

    def hear(self, event: Event) -> None:
        """Know which runs are new, and keep nothing about those that are forgotten."""
        if isinstance(event, RunQueued) and event.run.attempt == 1:
            self._asked_here.add(event.run_id)
        if isinstance(event, RunForgotten):
            self._asked_here.discard(event.run_id)
            self._kit.restraint.forget(event.run_id)
            self._keeper.forget(event.run_id)
            for store in (self._rights, self._leases):
                store.pop(event.run_id, None)

    def charge(self, run_id: str, usage: Usage) -> None:
        """What an earlier process has spent on a run that goes on counts, here and above."""
        self._leases[run_id].settle(0, 0.0, usage)

    def find_grant(self, run_id: str) -> Grant:
        """What a run may use now; for any other id what the main agent may."""
        rights = self._kit.restraint.narrow(run_id, self._rights.get(run_id, self._root))
        if self._granted is None or self._granted[0] is not rights:
            self._granted = rights, Grant(tuple(sorted(rights.tools)), rights.readonly)
        return self._granted[1]

    def _find_bound(self, run: Run, request: RunRequest) -> Rights:
        """The rights that a run's cannot exceed. A file that has changed since does not widen a resumed run."""
        restraint = self._kit.restraint
        if (own := self._rights.get(run.id)) is not None:
            return restraint.narrow(run.id, own)
        # In another process nobody remembers the parent; what it could use is on record with the run.
        is_known = run.depth <= 1 or run.parent_id in self._rights
        if not is_known and run.grant is None:
            raise RetinueError(f"run {run.id!r} cannot start: what its parent {run.parent_id!r} may use is not known")
        bound = self._root if run.depth <= 1 else self._rights.get(run.parent_id, self._root)
        grant = run.grant
        if grant is not None and self._admitted and run.depth <= 1 and run.id in self._asked_here:
            grant = Grant((*grant.tools, *self._admitted), grant.readonly)
        if self._narrowed is None or self._narrowed[0] is not bound or self._narrowed[1] is not grant:
            self._narrowed = bound, grant, narrow_rights(bound, grant)
        return restraint.narrow(run.parent_id, narrow_rights(self._narrowed[2], request.grant))

    async def _set_up(self, run: Run, request: RunRequest, parent: LiveRun, fitting: Fitting) -> RunSetup:
        definition, rights, kit = fitting.definition, fitting.rights, self._kit
        is_pi = choose_runner(definition, request, kit) == "pi"
        model, wanted = choose_model(definition, request, parent.setup.model, kit.models, is_foreign=is_pi)
        level = choose_level(request.thinking, definition.thinking, wanted) or parent.setup.thinking
        depth, max_depth = run.level + kit.policy.base_depth, kit.policy.find_depth(request.surface)
        depths = {"PI_SUBAGENT_DEPTH": depth, "PI_SUBAGENT_MAX_DEPTH": max_depth}
        limits = choose_limits(definition, request, kit.policy)
        # What the clock starts is no part of the last prompt.
        above = kit.lease.repeat() if request.skips_queue else self._leases.get(run.parent_id, kit.lease)
        lease = Lease(limits.tokens, limits.cost_usd, above)
        self._leases[run.id] = lease
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

    def _warn(self, run: Run, rights: Rights, parent: LiveRun) -> None:
        """Tell what the file asks for and nobody knows: it is a slip of the pen, or an extension is missing."""
        unknown = [item.sentence for item in rights.refused if item.code == "unknown" and item.name not in KNOWN_TOOLS]
        for text in (*unknown, *rights.warnings):
            parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {text}"))

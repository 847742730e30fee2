"""Makes a run out of a definition, a request and the run that asks: model, rights, prompt, limits, session.

What it needs from above (which definitions there are, how a model is opened, which features surround a run) is handed
in as a Kit. Must not know settings, files of definitions or any surface's results.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.errors import ModelError, RetinueError, quote
from retinue.core.events import Event, RunForgotten, RunQueued, Warned
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel, Usage
from retinue.core.model import Model, ModelInfo
from retinue.core.run import Grant, Outcome, Run
from retinue.core.tool import Tool
from retinue.definitions.toolnames import KNOWN_TOOLS
from retinue.engine.budget import BudgetedModel, Lease
from retinue.engine.childprompt import (
    Identity,
    Place,
    build_append,
    build_codingcode,
    build_replace,
    build_sticky,
    build_subagent,
)
from retinue.engine.extras import NOTHING, Extras, add_nothing
from retinue.engine.ids import make_uuid
from retinue.engine.limits import CLEANUP_S, Limits
from retinue.engine.prompt import render_prompt
from retinue.engine.request import RunRequest
from retinue.engine.restraint import Restrained, Restraint
from retinue.engine.runner import LiveRun
from retinue.engine.setup import Feature, RunSetup
from retinue.engine.survey import Surveys
from retinue.models.resolve import Choice
from retinue.models.retry import RetryPolicy
from retinue.models.thinking import clamp_level
from retinue.sessions.compaction import CompactionConfig
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.tools.policy import SUBAGENT_READONLY, Rights, Terms, decide_tools, is_readonly, narrow_rights
from retinue.tools.renamed import rename_tools
from retinue.tools.selectors import Offer

Number = TypeVar("Number", int, float)
Runner: TypeAlias = Literal["inprocess", "durable", "process", "pi", "cluster"]
HERE = ("inprocess", "durable")
"""Runners that work in this process."""
ISOLATED_CLEANUP_S = 120.0
"""Saving the work of a whole repository takes longer than closing a file."""


class Models(Protocol):
    """Where models come from."""

    def resolve(self, query: str) -> Choice:
        """The model a definition's or a caller's words mean. Raises ModelError."""
        ...

    def open(self, info: ModelInfo) -> Model:
        """A model ready to be asked. Raises ModelError or ConfigError."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user decides about all agents."""

    readonly_bash: bool = False
    is_confined: bool = False
    confinement: str = "no sandbox is available on this machine"
    judge: Callable[[], tuple[bool, str]] | None = None
    """Says both when they are needed, which takes a while; instead of the two above."""
    has_lsp: bool = True
    always_exposed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    """Tools that no agent has."""
    max_depth: Mapping[str, int] = field(default_factory=lambda: {"fleet": 4})
    """How deep runs of a surface may nest; 1 where it is not said."""
    base_depth: int = 0
    """How deep the main agent is itself, when it runs inside another program's agent."""
    default_max_turns: int | None = None
    grace_turns: int = 5

    def tell(self) -> tuple[bool, str]:
        """Whether read-only commands can be confined, and why not."""
        return self.is_confined, self.confinement

    def find_depth(self, surface: str) -> int:
        return self.max_depth.get(surface, 1)


class Fitting(Struct, frozen=True):
    """A run on the way to its setup: what features look at to decide whether they are wanted."""

    definition: Definition
    request: RunRequest
    rights: Rights
    terms: Terms
    cwd: Path
    tools: Mapping[str, Tool]
    """Every tool there is, by its own name."""
    branch: str = ""
    """Where an earlier attempt has left its changes."""
    extras: Extras = NOTHING


@dataclass(frozen=True, slots=True)
class Errand:
    """What has to be known of a run, beside its setup, to let it work elsewhere."""

    runner: Runner
    definition: Definition
    request: RunRequest
    rights: Rights
    session_file: str
    """Where its session is kept; empty for nowhere."""
    lease: Lease
    attempt: int = 1
    branch: str = ""
    """Where an earlier attempt has left its changes."""


@dataclass(frozen=True, slots=True)
class Kit:
    """All that runs of one main agent are made from."""

    find: Callable[[str, str], Definition]
    """By name and surface; raises RetinueError for a name that cannot be run."""
    models: Models
    tools: Mapping[str, Tool]
    survey: Callable[[Path], Awaitable[Place]]
    list_features: Callable[[Fitting], Sequence[Feature]] = lambda fitting: ()
    compaction: Callable[[str], CompactionConfig] = lambda ref: CompactionConfig()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    policy: Policy = field(default_factory=Policy)
    context_files: Sequence[tuple[str, str]] = ()
    """Instructions of the project, for agents whose prompt has them."""
    rules: Sequence[str] = ()
    orphan_dir: Path | None = None
    """Where sessions of runs are kept whose main agent has none."""
    extend: Callable[[Definition, RunRequest], Awaitable[Extras]] = add_nothing
    lease: Lease = field(default_factory=Lease)
    """What one main prompt may spend with all it starts."""
    restraint: Restraint = field(default_factory=Restraint)
    """What has been taken from runs since they began."""
    runner: Runner = "inprocess"
    """Where runs work whose definition does not say."""
    asks: Callable[[], bool] = lambda: False
    """Whether a person may be asked about calls; a question does not get out of another process."""
    has_cluster: bool = False
    """Whether there are other machines to work on; what is asked or ruled is so here, wherever a run works."""
    send_out: Callable[[RunSetup, Errand], LiveRun] | None = None
    """Makes a run that works in a process of its own; None where all work here."""


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
        self._unsaved: dict[str, Session] = {}
        """Sessions without a file, which a resumed run goes on with."""

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
            return LiveRun(setup, self._open_session(run, request, parent, fitting.cwd), clock=self._clock)
        path, _ = self._find_place(run, request, parent)
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
            for store in (self._rights, self._leases, self._unsaved):
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
        level = _find_level(request.thinking, definition.thinking, wanted) or parent.setup.thinking
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

    def _open_session(self, run: Run, request: RunRequest, parent: LiveRun, cwd: Path) -> Session:
        """The run's session, opened or made."""
        path, tree = self._find_place(run, request, parent)
        if path is None and run.id in self._unsaved:
            return self._unsaved[run.id]
        # A run that nobody knew before this process has no file at a place of its own; to look costs more than to know.
        is_new = run.attempt == 1 and run.id in self._asked_here and not request.session_file
        exists = path is not None and not is_new and path.exists()
        if run.attempt > 1 and run.started_ms and not exists:
            raise RetinueError(f'Agent "{run.id}" has no active session to resume.')
        if path is not None and exists:
            return Session.open(path, clock=self._clock, new_id=make_uuid, tree=tree, cwd=str(cwd))
        above = parent.session.path
        session = Session.create(
            cwd=cwd,
            directory=None,
            path=path,
            parent_session=str(above) if above else None,
            clock=self._clock,
            new_id=make_uuid,
            tree=tree,
        )
        if path is None:
            self._unsaved[run.id] = session
        return session

    def _find_place(self, run: Run, request: RunRequest, parent: LiveRun) -> tuple[Path | None, SessionTree | None]:
        """Where its session lies: where the request says, beside its main session, or among those without one."""
        tree = parent.session.tree
        if not request.keeps_session:
            return None, None
        if request.session_file:
            path = Path(request.session_file)
            # What is not below the main session is not under its lock.
            is_below = tree is not None and tree.main is not None and path.is_relative_to(tree.main.with_suffix(""))
            return path, tree if is_below else None
        if tree is not None:
            return tree.child_path(run.id), tree
        return None if self._kit.orphan_dir is None else self._kit.orphan_dir / run.id / "session.jsonl", None

    def _warn(self, run: Run, rights: Rights, parent: LiveRun) -> None:
        """Tell what the file asks for and nobody knows: it is a slip of the pen, or an extension is missing."""
        unknown = [item.sentence for item in rights.refused if item.code == "unknown" and item.name not in KNOWN_TOOLS]
        for text in (*unknown, *rights.warnings):
            parent.bus.publish(Warned(run_id=run.id, text=f"agent {quote(run.agent)}: {text}"))


def choose_runner(definition: Definition, request: RunRequest, kit: Kit) -> Runner:
    """Where a run works: where its file says, else where the settings say."""
    wanted = definition.runner or kit.runner
    if request.surface == "dispatch":
        return "durable" if wanted == "durable" else "inprocess"  # what its runs may do is asked here, call by call
    if wanted == "pi" and definition.source == "project" and kit.runner != "pi":
        wanted = "process"  # a pi starts its commands outside of our sandbox, which no project may choose
    if wanted == "cluster" and not kit.has_cluster:
        wanted = "inprocess"
    return "inprocess" if wanted == "process" and kit.asks() else wanted


def choose_model(
    definition: Definition, request: RunRequest, inherited: Model, models: Models, *, is_foreign: bool = False
) -> tuple[Model, ThinkingLevel | None]:
    """What the request settles, else what the file pins or wishes, else the parent's; and the level in that name.

    `is_foreign`: another program asks the model, which may know it by a name that means nothing here.
    """
    name = request.model or definition.model
    if not name:
        return unwrap(inherited), None
    try:
        choice = models.resolve(name)
    except ModelError as error:
        is_lenient = definition.is_model_wish or request.surface == "fleet"
        if is_foreign or (request.model is None and is_lenient):
            return unwrap(inherited), None
        raise ModelError(f"agent {quote(definition.name)}: {error}") from error
    if choice.info.ref == inherited.info.ref:
        return unwrap(inherited), choice.thinking
    return models.open(choice.info), choice.thinking


def unwrap(model: Model) -> Model:
    """The model itself: a child spends on its own lease and has its own hooks, not its parent's."""
    while True:
        inner: Model | None = model.model if isinstance(model, BudgetedModel) else getattr(model, "inner_model", None)
        if inner is None:
            return model
        model = inner


def choose_limits(definition: Definition, request: RunRequest, policy: Policy) -> Limits:
    """What the request settles, else what the file says, else what the user says; 0 turns is no limit."""
    said = (request.max_turns, definition.max_turns, policy.default_max_turns)
    turns = next((number for number in said if number is not None), None)
    return Limits(
        max_turns=turns or None,
        grace_turns=policy.grace_turns,
        wall_s=request.wall_s,
        idle_s=request.idle_s,
        strict_idle=request.strict_idle,
        tool_s=request.tool_s,
        tokens=_find_smaller(request.tokens, definition.max_tokens_total),
        cost_usd=_find_smaller(request.cost_usd, definition.max_cost),
        cleanup_s=ISOLATED_CLEANUP_S if request.isolation else CLEANUP_S,
    )


def _find_smaller(one: Number | None, other: Number | None) -> Number | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _find_level(*words: str | None) -> ThinkingLevel | None:
    """The first that is a level; a file may say anything."""
    return next((level for word in words for level in THINKING_LEVELS if level == word), None)

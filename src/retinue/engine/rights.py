"""Which tools the runs of one main agent may use: decided at the start, never more than their parent's.

`tools/policy.py` chooses the tools of a definition. Tools can be revoked while a run works, which is checked before
each call; revoked tools are never given back. MUST NOT know what a run does with its tools.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.core.messages import ToolCall
from retinue.core.run import Grant, Run
from retinue.core.tool import Effect, Tool, ToolResult
from retinue.core.tool_table import KNOWN_TOOLS
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Additions, Policy
from retinue.tools.policy import Rights, Terms, decide_tools, is_readonly, narrow_rights
from retinue.tools.selectors import Offer


class RevokedRights(Struct, frozen=True):
    tools: frozenset[str] = frozenset()
    """Original tool names, not the names that the model sees."""
    is_readonly: bool = False


class RevokedTools:
    """What was revoked from the runs of one main agent since they began."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self._losses: dict[str, RevokedRights] = {}
        self._main = ""

    def succeed(self, run_id: str) -> None:
        """Register the main agent of another session; it inherits what was revoked from the one before it."""
        if self._main:
            self.place(run_id, self._main)
        self._main = run_id

    def place(self, run_id: str, parent_id: str) -> None:
        self._above[run_id] = parent_id

    def forget(self, run_id: str) -> None:
        """Drop a run; its children keep its losses and get its parent."""
        above, loss = self._above.pop(run_id, None), self._losses.pop(run_id, None)
        for below in [each for each, parent in self._above.items() if parent == run_id]:
            if above is None:
                del self._above[below]
            else:
                self._above[below] = above
            if loss is not None:
                self.lower(below, loss.tools, readonly=loss.is_readonly)

    def lower(self, run_id: str, tools: Iterable[str] = (), *, readonly: bool = False) -> None:
        """Revoke tools, or everything that can change something, from a run and all runs below it."""
        before = self._losses.get(run_id, RevokedRights())
        self._losses[run_id] = RevokedRights(before.tools | frozenset(tools), before.is_readonly or readonly)

    def narrow(self, run_id: str, rights: Rights) -> Rights:
        """Return the rights without what was revoked from the run or any run above it."""
        for loss in self._list(run_id):
            left = tuple(name for name in rights.allowed if rights.targets.get(name, name) not in loss.tools)
            rights = structs.replace(rights, allowed=left, readonly=rights.readonly or loss.is_readonly)
        return rights

    def judge(self, run_id: str, tool: str, effect: Effect) -> str:
        """Return why a tool may not be used any more; empty if it may."""
        for loss in self._list(run_id):
            if tool in loss.tools:
                return f"{tool} was revoked from this agent while it worked"
            # The sandbox of commands was set up when the run began and would still allow writing. What a network tool
            # changes on the other side is unknown.
            if loss.is_readonly and effect in (Effect.WRITE, Effect.EXECUTE, Effect.NETWORK):
                return f"{tool} can change things, and this agent was made read-only while it worked"
        return ""

    def _list(self, run_id: str) -> Iterator[RevokedRights]:
        at: str | None = run_id if self._losses else None
        while at is not None:
            if (loss := self._losses.get(at)) is not None:
                yield loss
            at = self._above.get(at)


class RevokedToolsHook:
    """Refuses calls of revoked tools; one hook serves one run."""

    wants: ClassVar[Mapping[str, bool]] = {}
    """Empty: calls on other machines need not be sent here for this hook alone."""

    def __init__(self, revoked: RevokedTools, run_id: str, find_tool: Callable[[str], str] = str) -> None:
        """`find_tool` returns the original tool for the name that the model used."""
        self._revoked = revoked
        self._run_id = run_id
        self._find_tool = find_tool

    async def before(self, call: ToolCall, tool: Tool) -> ToolResult | None:
        # A revoked tool is revoked under all of its names.
        for name in dict.fromkeys((self._find_tool(call.name), tool.spec.own_name)):
            if reason := self._revoked.judge(self._run_id, name, tool.effect):
                return ToolResult.of(reason, {}, is_error=True)
        return None

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        return result


class RightsTable:
    """The rights of a main agent and of all its runs."""

    def __init__(
        self,
        policy: Policy,
        tools: Mapping[str, Tool],
        revoked: RevokedTools,
        root: Rights,
        asked_here: Container[str] = (),
    ) -> None:
        """`asked_here` are waiting runs that also get tools which the main agent receives later."""
        self._policy = policy
        self._revoked = revoked
        self._offers = {name: Offer(tool.effect) for name, tool in tools.items()}
        self._root = root
        self._asked_here = asked_here
        self._rights: dict[str, Rights] = {}
        self._admitted: tuple[str, ...] = ()
        # Runs that start together are mostly alike, so the last decision is cached.
        self._decided: tuple[Definition, Terms, Rights] | None = None
        self._granted: tuple[Rights, Grant] | None = None
        self._narrowed: tuple[Rights, Grant | None, Rights] | None = None

    def decide(self, run: Run, request: RunRequest, definition: Definition, added: Additions) -> tuple[Rights, Terms]:
        """Return the rights of a run, never more than its parent's, and the terms that decided them."""
        terms = build_terms(
            self._policy,
            definition,
            request.surface,
            level=run.level,
            available={**self._offers, **added.offers},
            parent=self._find_bound(run, request),
            allow_write=request.allow_write,
            isolated=request.isolated,
            extensions=added.found,
            failed=added.failed,
        )
        if self._decided is None or self._decided[0] is not definition or self._decided[1] != terms:
            self._decided = (definition, terms, decide_tools(definition, terms))
        return self._decided[2], terms

    def narrow(self, run: Run, request: RunRequest, definition: Definition) -> Definition:
        """Return the definition made read-only if the run will be: what is started for it must not have more rights."""
        terms = Terms(available={}, parent=self._find_bound(run, request), allow_write=request.allow_write)
        if definition.readonly or not is_readonly(definition, terms):
            return definition
        return structs.replace(definition, readonly=True)

    def remember(self, run_id: str, rights: Rights) -> None:
        """Store the rights of a run that starts: they limit its children, and the run itself when it is resumed."""
        self._rights[run_id] = rights

    def forget(self, run_id: str) -> None:
        self._rights.pop(run_id, None)

    def admit(self, names: Iterable[str]) -> None:
        """Add tools that the main agent received later; its runs may have them too."""
        new = [name for name in names if name not in self._root.tools]
        self._root = structs.replace(self._root, allowed=(*self._root.allowed, *new)) if new else self._root
        self._admitted += tuple(new)

    def find_grant(self, run_id: str) -> Grant:
        """Return what a run may use now; for an unknown id, what the main agent may use."""
        rights = self._revoked.narrow(run_id, self._rights.get(run_id, self._root))
        if self._granted is None or self._granted[0] is not rights:
            self._granted = rights, Grant(tuple(sorted(rights.tools)), rights.readonly)
        return self._granted[1]

    def _find_bound(self, run: Run, request: RunRequest) -> Rights:
        """Return the rights that a run may not exceed. An edited agent file does not give a resumed run more rights."""
        revoked = self._revoked
        if (own := self._rights.get(run.id)) is not None:
            return revoked.narrow(run.id, own)
        # After a restart the rights of the parent are not in memory; those recorded with the run are used.
        is_known = run.depth <= 1 or run.parent_id in self._rights
        if not is_known and run.grant is None:
            raise RetinueError(f"run {run.id!r} cannot start: what its parent {run.parent_id!r} may use is not known")
        bound = self._rights.get(run.parent_id, self._root)
        grant = run.grant
        if grant is not None and self._admitted and run.depth <= 1 and run.id in self._asked_here:
            grant = Grant((*grant.tools, *self._admitted), grant.readonly)
        if self._narrowed is None or self._narrowed[0] is not bound or self._narrowed[1] is not grant:
            self._narrowed = bound, grant, narrow_rights(bound, grant)
        return revoked.narrow(run.parent_id, narrow_rights(self._narrowed[2], request.grant))


def build_terms(policy: Policy, definition: Definition, surface: str, *, level: int, **facts: Any) -> Terms:
    """Return the terms for a run of a definition on a surface, `level` levels below the main agent."""
    rules = policy.find_surface(surface)
    terms = Terms(
        readonly_set=rules.readonly_set,
        readonly_bash=policy.readonly_bash,
        is_exact=rules.is_exact,
        has_lsp=policy.has_lsp,
        user_denied=policy.denied,
        may_nest=level + policy.base_depth < rules.max_depth,
        always_exposed=policy.always_exposed,
        **facts,
    )
    if not is_readonly(definition, terms):
        return terms
    # The check starts programs and is slow, so it is made only for read-only runs.
    is_confined, confinement = (policy.judge or policy.tell)()
    return structs.replace(terms, is_confined=is_confined, confinement=confinement)


def decide_root(
    policy: Policy, definition: Definition, tools: Mapping[str, Tool], added: Additions
) -> tuple[Rights, Terms]:
    """Return the rights of a main agent with this definition; there is no parent to limit them."""
    offers = {name: added.offers.get(name) or Offer(tool.effect) for name, tool in {**tools, **added.tools}.items()}
    terms = build_terms(policy, definition, "", level=0, available=offers, extensions=added.found, failed=added.failed)
    return decide_tools(definition, terms), terms


def list_doubts(rights: Rights) -> list[str]:
    """Return warnings about unknown tools in an agent file: a typo, or an extension is missing."""
    unknown = [item.sentence for item in rights.refused if item.code == "unknown" and item.name not in KNOWN_TOOLS]
    return [*unknown, *rights.warnings]

"""Decides which tools a run may use, and for each refused tool, why. Pure.

Allowed = declared ∩ the parent's ∩ what the user allows. A denial wins over everything, an empty list means no tools,
and read-only is inherited by children. Knows tools only by name and effect; whether a sandbox works is passed in.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.diagnostics import suggest
from retinue.core.errors import quote
from retinue.core.run import Grant
from retinue.core.tool import Effect, suggest_tool
from retinue.core.tool_table import ASK, SEARCH, ToolAudience, list_names, list_rows
from retinue.tools.selectors import (
    NOTHING,
    Offer,
    choose_selectors,
    is_exposed,
    is_selected,
    list_extensions,
    match_denied,
    match_tools,
    may_mean,
    to_extension_name,
)


def list_offers(*, family: str = "", audience: ToolAudience | None = None) -> dict[str, Offer]:
    """Return the tools of a family or for an audience, without importing them."""
    return {row.name: Offer(row.effect) for row in list_rows(family=family, audience=audience)}


BUILTIN_OFFERS = list_offers(audience="everyone")
EXTRA_OFFERS = list_offers(audience="listed")
_SWITCHED_OFFERS = list_offers(audience="settings")
OFFERS = {**BUILTIN_OFFERS, **EXTRA_OFFERS, **_SWITCHED_OFFERS}
"""All of retinue's own tools, enabled or not."""
_INTERNAL = list_names(audience="internal")
_READING = (Effect.READ, Effect.NETWORK)
SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
SUBAGENT_READONLY = frozenset(
    (ASK, *(name for name, offer in (BUILTIN_OFFERS | _SWITCHED_OFFERS).items() if offer.effect in _READING))
)
"""All tools that a read-only agent of the `subagent` surface may have."""

Verdict: TypeAlias = tuple[str, str]


class ToolRefusal(Struct, frozen=True):
    name: str
    """The name as written in the agent file."""
    code: str
    """unknown, internal, denied, user, isolated, excluded, extensions, selectors, servers, delegation, depth, lsp,
    readonly, write, sandbox or parent.
    """
    sentence: str


class Rights(Struct, frozen=True):
    allowed: tuple[str, ...] = ()
    """The names the model sees, in the order of the agent file."""
    refused: tuple[ToolRefusal, ...] = ()
    readonly: bool = False
    targets: dict[str, str] = {}
    """Visible name → the tool's own name, where they differ."""
    warnings: tuple[str, ...] = ()
    """Declarations that have no effect."""

    @property
    def tools(self) -> frozenset[str]:
        """The allowed tools by their own names."""
        return frozenset([self.targets.get(name, name) for name in self.allowed] if self.targets else self.allowed)

    @property
    def refusals(self) -> dict[str, str]:
        """Error messages for calls of tools that are refused only because this machine has no sandbox."""
        return {item.name: item.sentence for item in self.refused if item.code == "sandbox"}


class Terms(Struct, frozen=True, kw_only=True):
    """Everything except the definition that decides which tools a run gets."""

    available: Mapping[str, Offer]
    """Every tool that exists here, by its own name, in display order."""
    parent: Rights | None = None
    """The parent's rights if the run is a subagent; None for a main agent."""
    readonly: bool = False
    """Read-only for another reason than the definition or the parent."""
    allow_write: bool | None = None
    """The surface's switch for agents that write; None if the surface has no such switch."""
    readonly_set: frozenset[str] | None = None
    """The surface's exact list of read-only tools; None: the effect of a tool decides."""
    readonly_bash: bool = False
    """The user adds sandboxed `bash` to `readonly_set`."""
    is_exact: bool = False
    """The surface gives only the listed tools, and no tools of extensions."""
    is_confined: bool = False
    """Read-only commands run inside the OS sandbox."""
    confinement: str = "no sandbox is available on this machine"
    """Why they do not."""
    has_lsp: bool = True
    may_nest: bool = True
    """The run has not reached the maximum depth, so it may start agents."""
    isolated: bool = False
    """The caller wants no extensions; the definition can also ask for this."""
    always_exposed: tuple[str, ...] = ()
    """Extensions whose tools are not hidden by any list or selector."""
    extensions: frozenset[str] | None = None
    """Lower-case names of all existing extensions, with or without tools; None: only those with tools are known."""
    failed: frozenset[str] = frozenset()
    """Extensions that the run wanted and that failed to load."""
    user_denied: tuple[str, ...] = ()
    switches: Mapping[str, str] = {}
    """Which setting decides, in words, by refusal code or by the name of a disabled tool."""
    """The tools of a file that has no list, or the list `*`."""


def decide_tools(definition: Definition, terms: Terms) -> Rights:
    return ToolDecision(definition, terms).decide()


def reads_only(rights: Rights) -> bool:
    """Whether none of the allowed tools can change anything. Tools that are not retinue's own count as writing."""
    offers = [OFFERS.get(tool) for tool in rights.tools]
    return rights.readonly or all(offer is not None and offer.effect in _READING for offer in offers)


def narrow_rights(rights: Rights, grant: Grant | None) -> Rights:
    """Remove the rights that are not in a grant; without a grant, keep all."""
    if grant is None:
        return rights
    allowed = tuple(name for name in rights.allowed if rights.targets.get(name, name) in grant.tools)
    return structs.replace(rights, allowed=allowed, readonly=rights.readonly or grant.readonly)


def decide_extra(names: Iterable[str], definition: Definition, terms: Terms) -> Rights:
    """Decide which of these tools a feature may add to a run. All rules apply except the agent file's own list."""
    decision = ToolDecision(definition, terms)
    for name in names:
        decision.want(name, name)
    return decision.conclude()


def is_readonly(definition: Definition, terms: Terms) -> bool:
    """Whether the run may only read."""
    return (
        definition.readonly
        or terms.readonly
        or terms.allow_write is False
        or (terms.parent is not None and terms.parent.readonly)
    )


class ToolDecision:
    """Decides about each tool of one definition under given terms."""

    def __init__(self, definition: Definition, terms: Terms) -> None:
        self._definition = definition
        self._terms = terms
        self._available = terms.available
        self._aliases = definition.tools.aliases
        self._isolated = bool(definition.isolated) or terms.isolated
        self._readonly = is_readonly(definition, terms)
        self._denied = match_denied(definition.tools.denied, terms.available, self._aliases)
        self._user_denied = match_denied(terms.user_denied, terms.available, self._aliases)
        self._excluded = {to_extension_name(name) for name in definition.exclude_extensions}
        self._exposed = {name.lower() for name in terms.always_exposed}
        self._listed = list_extensions(definition.extensions)
        self._selectors = choose_selectors(definition)
        self._delegates: set[str] = set()
        self._parent = None if terms.parent is None else terms.parent.tools
        self._allowed: dict[str, str] = {}
        self._refused: dict[str, ToolRefusal] = {}

    def decide(self) -> Rights:
        """Decide about everything the definition asks for, in its order."""
        declared = self._definition.tools
        if declared.inherits:
            self._want_inherited()
        else:
            if declared.names is None or declared.all_builtins:
                for name in self._aliases or BUILTIN_OFFERS:
                    self._want_existing(name)
            for name in declared.names or ():
                self._want_named(name)
        self._want_extensions()
        if self._definition.allowed_subagents:
            for name, offer in self._available.items():
                if offer.effect is Effect.DELEGATE:
                    self._delegates.add(name)
                    self.want(name, name)
        return self.conclude()

    def conclude(self) -> Rights:
        targets = {visible: tool for visible, tool in self._allowed.items() if visible != tool}
        return Rights(
            tuple(self._allowed), tuple(self._refused.values()), self._readonly, targets, tuple(self._warn_idle())
        )

    def want(self, visible: str, tool: str) -> None:
        """Allow an existing tool under the name the model will see, or record why it is refused."""
        if visible in self._allowed or visible in self._refused:
            return
        found = self._judge(tool)
        if found is None:
            self._allowed[visible] = tool
        else:
            self._refuse(visible, *found)

    def _refuse(self, name: str, code: str, sentence: str) -> None:
        self._refused.setdefault(name, ToolRefusal(name, code, sentence))

    def _want_existing(self, name: str) -> None:
        tool = self._aliases.get(name, name)
        if tool in self._available:
            self.want(name, tool)

    def _want_inherited(self) -> None:
        for name, offer in self._available.items():
            has = self._parent is None or name in self._parent
            # A tool that the parent can pass on but does not use itself is not inherited.
            is_special = offer.effect is Effect.DELEGATE or name in _INTERNAL or name in EXTRA_OFFERS
            if has and not is_special:
                self.want(name, name)

    def _want_named(self, word: str) -> None:
        if word == SEARCH:
            return
        found = match_tools(word, self._available, self._aliases)
        if not found:
            if word in _INTERNAL:
                self._refuse(word, "internal", f"{word} is given to a run that needs it; listing it has no effect")
            else:
                closest = suggest_tool(word, [*self._available, *self._aliases])
                self._refuse(word, "unknown", f"there is no tool {quote(word)} here{self.name_switch(word) or closest}")
        for tool in found:
            self._delegates.add(tool)
            self.want(word if self._aliases.get(word, word) == tool else tool, tool)

    def _want_extensions(self) -> None:
        selectors = self._definition.tools.selectors
        for selector in selectors:
            found = [name for name, offer in self._available.items() if is_selected(selector, name, offer)]
            if "/" in selector:
                self._delegates.update(found)
            if not found:
                self._refuse(selector, "unknown", f"{quote(selector)} names no tool of a loaded extension")
        exact = self._terms.is_exact or self._definition.dialect != "pi"
        searches = not self._terms.is_exact and SEARCH in (self._definition.tools.names or ())
        for name, offer in self._available.items():
            if offer.extension is None:
                continue
            selected = any(is_selected(selector, name, offer) for selector in selectors)
            served = offer.server is not None and offer.server in self._definition.mcp_servers
            offered = not exact and offer.effect is not Effect.DELEGATE and self._judge_origin(name, offer) is None
            awaited = searches and offer.is_deferred and self._judge(name) is None
            if selected or served or offered or awaited:
                self.want(name, name)

    def _judge(self, tool: str) -> Verdict | None:
        """Return the strongest reason to refuse a tool, or None to allow it."""
        offer = self._available.get(tool)
        if offer is None:
            return "unknown", f"there is no tool {quote(tool)} here"
        return next((verdict for _, verdict in self.judge_steps(tool, offer) if verdict is not None), None)

    def judge_steps(self, tool: str, offer: Offer) -> Iterator[tuple[str, Verdict | None]]:
        """Yield each check with its refusal, or None if the check passes; the strongest check first."""
        steps = {
            "denials": self._judge_denial,
            "extensions": self._judge_origin,
            "kind": self._judge_kind,
            "read-only": self._judge_readonly,
            "parent": self._judge_parent,
        }
        for step, judge in steps.items():
            verdict = judge(tool, offer)
            yield step, verdict and (verdict[0], f"{verdict[1]}{self.name_switch(verdict[0])}")

    def name_switch(self, word: str) -> str:
        """Return the setting that disables a tool, as the end of a sentence; else an empty string."""
        switch = self._terms.switches.get(self._aliases.get(word, word), "")
        return f": {switch}" if switch else ""

    def _judge_denial(self, tool: str, offer: Offer) -> Verdict | None:
        if tool in self._denied:
            return "denied", f"{tool} is denied by the agent's own file"
        if tool in self._user_denied:
            return "user", f"{tool} is denied by the user's settings"
        return None

    def _judge_origin(self, tool: str, offer: Offer) -> Verdict | None:
        if offer.extension is None:
            return None
        definition, extension = self._definition, offer.extension.lower()
        code = reason = ""
        if self._isolated:
            code, reason = "isolated", "the agent runs isolated"
        elif extension in self._excluded:
            code, reason = "excluded", "exclude_extensions names it"
        elif definition.extensions is False:
            code, reason = "extensions", "the agent has no extensions"
        elif definition.mcp_servers and offer.server is not None and offer.server not in definition.mcp_servers:
            code, reason = "servers", f"the agent does not list its server {quote(offer.server)}"
        elif extension in self._exposed:
            return None
        elif self._listed is not None and extension not in self._listed:
            code, reason = "extensions", "the agent lists others"
        elif self._selectors and not is_exposed(self._selectors, definition.mcp_servers, tool, offer):
            is_empty = self._selectors == NOTHING
            other = (
                "is empty, and extensions are not named" if is_empty else "names other tools of extensions and servers"
            )
            code, reason = "selectors", f"the agent's list {other}"
        return (code, f"{tool} comes from the extension {quote(extension)}, and {reason}") if code else None

    def _judge_kind(self, tool: str, offer: Offer) -> Verdict | None:
        if tool in _INTERNAL:
            return "internal", f"{tool} is given to a run that needs it; listing it has no effect"
        if offer.effect is Effect.DELEGATE and tool not in self._delegates:
            return "delegation", f"{tool} starts agents: the file must list it, or set allowed_subagents"
        if offer.effect is Effect.DELEGATE and not self._terms.may_nest:
            return "depth", f"{tool} starts agents, and this one is at the maximum depth"
        if tool == "lsp" and not self._terms.has_lsp:
            return "lsp", "lsp is switched off, or no action of it is allowed to agents"
        return None

    def _judge_parent(self, tool: str, offer: Offer) -> Verdict | None:
        if self._parent is None or tool in self._parent or offer.is_approved:
            return None
        return "parent", f"{tool} is not among the tools of the agent that starts this one"

    def _judge_readonly(self, tool: str, offer: Offer) -> Verdict | None:
        if not self._readonly:
            return None
        terms = self._terms
        code, reason = "readonly", "the agent is read-only"
        if terms.allow_write is False and not self._definition.readonly:
            code, reason = "write", "agents may write here only when allowWrite is true"
        if tool == "bash" and offer.extension is None:
            if terms.readonly_set is not None and "bash" not in terms.readonly_set and not terms.readonly_bash:
                return code, f"bash is not a read-only tool here{self.name_switch('readonlyBash')}, and {reason}"
            if not terms.is_confined:
                text = "bash is given to a read-only agent inside a sandbox only"
                return "sandbox", f"{SANDBOX_UNAVAILABLE}: {terms.confinement}; {text}"
            return None
        is_reading = offer.effect in (Effect.READ, Effect.DELEGATE)
        # Fetching a page changes nothing, but the effect of an extension's network tool is unknown.
        is_reading = is_reading or (offer.effect is Effect.NETWORK and offer.extension is None)
        if not is_reading:
            return code, f"{tool} can change things, and {reason}"
        if terms.readonly_set is None or (tool in terms.readonly_set and offer.extension is None):
            return None
        return code, f"{tool} is not among the tools that read-only agents may have here, and {reason}"

    def _is_unasked(self, word: str) -> bool:
        """Whether a word names a tool of a server that this run does not connect to, so that its tools are unknown."""
        definition = self._definition
        is_listed = bool(self._selectors or definition.mcp_servers) or definition.dialect != "pi"
        is_listed = is_listed or self._isolated or definition.extensions is False
        servers = {offer.server for offer in self._available.values() if offer.server is not None}
        is_served = ":" in word or word.startswith("mcp__")
        return is_served and is_listed and not any(may_mean(word, server) for server in servers)

    def _warn_idle(self) -> Iterable[str]:
        """Warn about declarations that have no effect, because each may be a typing error."""
        definition, available = self._definition, self._available
        for word in definition.tools.denied:
            if self._is_unasked(word):
                continue
            if not match_denied([word], available, self._aliases):
                yield f"unknown disallowed tool {quote(word)}{suggest_tool(word, available)}"
            elif not match_tools(word, available, self._aliases) and word.lower() not in ("*", "all"):
                meant = ", ".join(sorted(match_denied([word], available, self._aliases)))
                yield f"disallowed tool {quote(word)} is taken as {meant}"
        if self._isolated:
            return
        offering = {offer.extension.lower() for offer in available.values() if offer.extension is not None}
        known = offering | (self._terms.extensions or frozenset())
        loaded = known - self._terms.failed
        for name in sorted(self._excluded - known):
            yield f"excluded extension {quote(name)} is not there{suggest(name, known)}"
        if self._excluded and definition.extensions is False:
            yield "exclude_extensions has no effect: the agent has no extensions"
        for name in sorted((self._listed or set()) - loaded):
            yield f"extension {quote(name)} is not loaded"
        for name in sorted((self._listed or set()) & self._excluded):
            yield f"extension {quote(name)} is both listed and excluded; it is excluded"

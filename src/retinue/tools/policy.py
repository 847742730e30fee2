"""Which tools a run may use, and for every other one it asked for, why not. Pure.

Effective = declared ∩ the parent's ∩ what the user allows; a denial wins over everything, an empty list is empty, and
read-only passes on to children. Must not know tools beyond their names and effects, nor whether a sandbox works: that
is told.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.diagnostics import suggest
from retinue.core.errors import quote
from retinue.core.run import Grant
from retinue.core.tool import Effect, suggest_tool
from retinue.core.tool_table import SEARCH, ToolAudience, list_names, list_rows
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
    """The tools of a family, or for an audience, without loading them."""
    return {row.name: Offer(row.effect) for row in list_rows(family=family, audience=audience)}


BUILTIN_OFFERS = list_offers(audience="everyone")
EXTRA_OFFERS = list_offers(audience="listed")
_SWITCHED_OFFERS = list_offers(audience="settings")
OFFERS = {**BUILTIN_OFFERS, **EXTRA_OFFERS, **_SWITCHED_OFFERS}
"""All of ours, switched on or not."""
_INTERNAL = list_names(audience="internal")
_READING = (Effect.READ, Effect.NETWORK)
SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
SUBAGENT_READONLY = frozenset(
    name for name, offer in (BUILTIN_OFFERS | _SWITCHED_OFFERS).items() if offer.effect in _READING
)
"""All that a read-only agent of the `subagent` surface may have."""

Verdict: TypeAlias = tuple[str, str]
"""The code and the sentence of a refusal."""


class ToolRefusal(Struct, frozen=True):
    """One tool that was asked for and is not given."""

    name: str
    """As the file names it."""
    code: str
    """unknown, internal, denied, user, isolated, excluded, extensions, selectors, servers, delegation, depth, lsp,
    readonly, write, sandbox or parent."""
    sentence: str


class Rights(Struct, frozen=True):
    """What one run may use."""

    allowed: tuple[str, ...] = ()
    """The names the model sees, in the order of the file."""
    refused: tuple[ToolRefusal, ...] = ()
    readonly: bool = False
    targets: dict[str, str] = {}
    """Name the model sees → name of the tool, where they differ."""
    warnings: tuple[str, ...] = ()
    """What in the declaration has no effect."""

    @property
    def tools(self) -> frozenset[str]:
        """The allowed tools by their own names."""
        return frozenset([self.targets.get(name, name) for name in self.allowed] if self.targets else self.allowed)

    @property
    def refusals(self) -> dict[str, str]:
        """What is answered to a call of a tool that only this machine's lack of a sandbox keeps away."""
        return {item.name: item.sentence for item in self.refused if item.code == "sandbox"}


class Terms(Struct, frozen=True, kw_only=True):
    """All that decides about a run's tools beside its definition."""

    available: Mapping[str, Offer]
    """Every tool that exists here, by its own name, in the order they are shown."""
    parent: Rights | None = None
    """The parent's rights when the run is spawned; None for a main agent."""
    readonly: bool = False
    """Read-only for another reason than the definition or the parent."""
    allow_write: bool | None = None
    """The surface's switch for writing agents; None where a surface has none."""
    readonly_set: frozenset[str] | None = None
    """The surface's exact list of read-only tools; None: a tool's effect decides."""
    readonly_bash: bool = False
    """The user adds confined `bash` to that list."""
    is_exact: bool = False
    """The surface gives what is listed and nothing beside it, no extension's tools either."""
    is_confined: bool = False
    """Read-only commands run inside the OS sandbox."""
    confinement: str = "no sandbox is available on this machine"
    """Why they do not."""
    has_lsp: bool = True
    may_nest: bool = True
    """The run is not yet as deep as runs may be."""
    isolated: bool = False
    """The caller asks for no extensions; the definition may ask for it, too."""
    always_exposed: tuple[str, ...] = ()
    """Extensions whose tools no list and no selector hides."""
    extensions: frozenset[str] | None = None
    """All extensions that exist, whether they offer tools or not, in lower case; None: only those that do are known."""
    failed: frozenset[str] = frozenset()
    """Those of them that the run wanted and that could not be loaded."""
    user_denied: tuple[str, ...] = ()
    switches: Mapping[str, str] = {}
    """What of the settings decides, in words, by the code of a refusal or the name of a tool that is switched off."""
    builtins: tuple[str, ...] = tuple(BUILTIN_OFFERS)
    """What a file means that lists nothing, or `*`."""


def decide_tools(definition: Definition, terms: Terms) -> Rights:
    """The rights of a run of this definition."""
    return ToolDecision(definition, terms).decide()


def reads_only(rights: Rights) -> bool:
    """Whether nothing it may use changes anything; of a tool that is not ours nobody knows."""
    offers = [OFFERS.get(tool) for tool in rights.tools]
    return rights.readonly or all(offer is not None and offer.effect in _READING for offer in offers)


def narrow_rights(rights: Rights, grant: Grant | None) -> Rights:
    """Those of the rights that somebody else had, too; all of them when nobody is named."""
    if grant is None:
        return rights
    allowed = tuple(name for name in rights.allowed if rights.targets.get(name, name) in grant.tools)
    return structs.replace(rights, allowed=allowed, readonly=rights.readonly or grant.readonly)


def decide_extra(names: Iterable[str], definition: Definition, terms: Terms) -> Rights:
    """Which of some tools a feature may add to such a run: everything holds but the file's own list."""
    decision = ToolDecision(definition, terms)
    for name in names:
        decision.want(name, name)
    return decision.conclude()


def is_readonly(definition: Definition, terms: Terms) -> bool:
    """Whether such a run may only read; it is then that what its commands can be confined by matters."""
    return (
        definition.readonly
        or terms.readonly
        or terms.allow_write is False
        or (terms.parent is not None and terms.parent.readonly)
    )


class ToolDecision:
    """One definition under some terms, judged tool by tool."""

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
        """Everything the definition asks for, in its order, judged one by one."""
        declared = self._definition.tools
        if declared.inherits:
            self._want_inherited()
        else:
            if declared.names is None or declared.all_builtins:
                for name in self._aliases or self._terms.builtins:
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
        """What was decided."""
        targets = {visible: tool for visible, tool in self._allowed.items() if visible != tool}
        return Rights(
            tuple(self._allowed), tuple(self._refused.values()), self._readonly, targets, tuple(self._warn_idle())
        )

    def want(self, visible: str, tool: str) -> None:
        """Allow a tool that exists under the name the model will see, or say why not."""
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
            # What a parent may hand on but does not use itself is no active tool of its own.
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
        """Why a tool is not given, the strongest reason first; None when it is."""
        offer = self._available.get(tool)
        if offer is None:
            return "unknown", f"there is no tool {quote(tool)} here"
        return next((verdict for _, verdict in self.judge_steps(tool, offer) if verdict is not None), None)

    def judge_steps(self, tool: str, offer: Offer) -> Iterator[tuple[str, Verdict | None]]:
        """Each thing that may stand against a tool, and whether it does; the strongest first."""
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
        """What of the settings takes a tool away, as the end of a sentence; else nothing."""
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
            return "depth", f"{tool} starts agents, and this one is as deep as agents may be"
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
                return code, f"bash is no read-only tool here{self.name_switch('readonlyBash')}, and {reason}"
            if not terms.is_confined:
                text = "bash is given to a read-only agent inside a sandbox only"
                return "sandbox", f"{SANDBOX_UNAVAILABLE}: {terms.confinement}; {text}"
            return None
        is_reading = offer.effect in (Effect.READ, Effect.DELEGATE)
        # A page can be fetched without changing anything; what a foreign tool does at the other end nobody knows.
        is_reading = is_reading or (offer.effect is Effect.NETWORK and offer.extension is None)
        if not is_reading:
            return code, f"{tool} can change things, and {reason}"
        if terms.readonly_set is None or (tool in terms.readonly_set and offer.extension is None):
            return None
        return code, f"{tool} is not among the tools that read-only agents may have here, and {reason}"

    def _is_unasked(self, word: str) -> bool:
        """Whether a word is about a server that such a run does not ask: then nobody knows what tools it has."""
        definition = self._definition
        is_listed = bool(self._selectors or definition.mcp_servers) or definition.dialect != "pi"
        is_listed = is_listed or self._isolated or definition.extensions is False
        servers = {offer.server for offer in self._available.values() if offer.server is not None}
        is_served = ":" in word or word.startswith("mcp__")
        return is_served and is_listed and not any(may_mean(word, server) for server in servers)

    def _warn_idle(self) -> Iterable[str]:
        """What was said and changes nothing; each may be a slip of the pen."""
        definition, available = self._definition, self._available
        for word in definition.tools.denied:
            if self._is_unasked(word):
                continue
            if not match_denied([word], available, self._aliases):
                yield f"disallowed tool {quote(word)} is no tool here{suggest_tool(word, available)}"
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

"""Explains why an agent has a tool or not: every check that `tools.policy` makes, in order and in words. Pure."""

from msgspec import Struct

from retinue.core.definition import Definition
from retinue.core.tool import Effect
from retinue.core.tool_table import SEARCH
from retinue.tools.policy import Terms, ToolDecision, decide_tools, is_readonly
from retinue.tools.selectors import Offer, match_tools

_EFFECTS = {
    Effect.READ: "only reads",
    Effect.WRITE: "changes files",
    Effect.EXECUTE: "runs commands",
    Effect.NETWORK: "reaches the network",
    Effect.DELEGATE: "starts agents",
}


class ToolReason(Struct, frozen=True):
    """One check and its result."""

    step: str
    holds: bool
    sentence: str


class RightsChain(Struct, frozen=True):
    """All checks for one agent and one tool."""

    agent: str
    tool: str
    """The name as it was asked for."""
    is_granted: bool
    links: tuple[ToolReason, ...]

    @property
    def verdict(self) -> str:
        """The result in one sentence; the first failed check decides."""
        broken = next((link for link in self.links if not link.holds), None)
        if self.is_granted or broken is None:
            return f"{self.agent} has {self.tool}"
        return f"{self.agent} does not have {self.tool}: {broken.sentence}"


def explain_tool(definition: Definition, terms: Terms, word: str) -> RightsChain:
    """Explain one tool, by any name that an agent file may use for it."""
    rights = decide_tools(definition, terms)
    if word == SEARCH:
        waiting = sorted(name for name in rights.tools if terms.available[name].is_deferred)
        told = f"it finds {', '.join(waiting)}" if waiting else "there is no deferred tool that the agent may use"
        return RightsChain(definition.name, word, bool(waiting), (ToolReason("exists", bool(waiting), told),))
    aliases = definition.tools.aliases
    target = rights.targets.get(word, word)
    found = [target] if target in terms.available else list(match_tools(word, terms.available, aliases))
    if not found:
        told = f"there is no tool {word!r} here{ToolDecision(definition, terms).name_switch(word)}"
        refusal = next((item.sentence for item in rights.refused if item.name == word), told)
        return RightsChain(definition.name, word, False, (ToolReason("exists", False, refusal),))
    tool = found[0]
    offer = terms.available[tool]
    is_granted = tool in rights.tools
    is_found = offer.is_deferred and not terms.is_exact and SEARCH in (definition.tools.names or ())
    is_wanted = is_granted or is_found or any(item.name in (word, tool) for item in rights.refused)
    links = [
        ToolReason("exists", True, _describe(tool, offer)),
        _explain_wish(definition, word, tool, offer, is_wanted=is_wanted),
    ]
    decision = ToolDecision(definition, terms)
    decision.decide()
    for step, verdict in decision.judge_steps(tool, offer):
        links.append(
            ToolReason(step, verdict is None, verdict[1] if verdict else _tell_pass(step, definition, terms, tool))
        )
    return RightsChain(definition.name, word, is_granted, tuple(links))


def _describe(tool: str, offer: Offer) -> str:
    origin = "a builtin tool" if offer.extension is None else f"a tool of the extension {offer.extension!r}"
    return f"{tool} is {origin} that {_EFFECTS[offer.effect]}"


def _explain_wish(definition: Definition, word: str, tool: str, offer: Offer, *, is_wanted: bool) -> ToolReason:
    declared = definition.tools
    line = definition.lines.get("tools")
    place = definition.path if line is None else f"{definition.path}:{line}"
    if not is_wanted:
        return ToolReason("asked for", False, f"{place} does not ask for it")
    if declared.inherits:
        return ToolReason("asked for", True, f"{place} inherits the tools of the agent that starts it")
    if word in (declared.names or ()) or tool in (declared.names or ()):
        return ToolReason("asked for", True, f"{place} lists it")
    if offer.extension is not None:
        return ToolReason("asked for", True, f"{place} allows tools of extensions")
    return ToolReason("asked for", True, f"{place} lists no tools, so it gets all builtin ones")


def _tell_pass(step: str, definition: Definition, terms: Terms, tool: str) -> str:
    if step == "denials":
        return "neither the file nor the user's settings deny it"
    if step == "extensions":
        return "the agent may use tools of this origin"
    if step == "kind":
        return "no special rule applies to it"
    if step == "parent":
        return "no other agent starts this one" if terms.parent is None else "the agent that starts this one has it too"
    if not is_readonly(definition, terms):
        return "the agent may write"
    return (
        "the agent is read-only, and its commands are confined"
        if tool == "bash"
        else "the agent is read-only, and so is the tool"
    )

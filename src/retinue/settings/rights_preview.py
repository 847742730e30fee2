"""Predicts the tools of an agent's next run on each surface, and which setting removes a tool.

Uses the code that decides when a run begins, with the tools that the main agent would have. Starts nothing, so tools of
extensions and most tools of MCP servers are unknown. Must not know how anything is shown.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from retinue.core.definition import Definition
from retinue.core.errors import UnknownAgent, quote
from retinue.core.tool import Effect
from retinue.core.tool_table import DISPATCH, EFFECTS, SEARCH, SURFACES, list_names
from retinue.engine.rights import build_terms
from retinue.settings.layers import Layer
from retinue.settings.roster import explain_unknown
from retinue.settings.run_config import build_policy
from retinue.settings.subagents import find_user_file
from retinue.settings.switches import Switches, find_switch, load_switches
from retinue.settings.web import list_outside
from retinue.tools.policy import (
    BUILTIN_OFFERS,
    EXTRA_OFFERS,
    Rights,
    Terms,
    decide_tools,
)
from retinue.tools.rights_chain import RightsChain, ToolReason, explain_tool
from retinue.tools.selectors import MCP, SELECTOR, Offer, choose_selectors, match_denied

if TYPE_CHECKING:
    from retinue.features.mcp.server import McpServer
    from retinue.settings.roster import Roster


@dataclass(frozen=True, slots=True)
class PreviewInput:
    """Input of a prediction beside the agents and the settings."""

    layers: Sequence[Layer] = ()
    """The sources of the settings."""
    environment: Mapping[str, str] = field(default_factory=dict)
    delegation: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The delegation tools of each surface."""


class RightsPreview:
    """Predicts the rights of runs of one folder's agents."""

    def __init__(self, roster: "Roster", around: PreviewInput) -> None:
        self._roster = roster
        self._around = around
        self._policy = structs.replace(build_policy(roster.crew, around.environment), judge=roster.boundaries.judge)

    def find(self, name: str) -> dict[str, Definition]:
        """Return which agent a name means on each surface that knows it. Raises UnknownAgent."""
        roster = self._roster
        found, fallback = roster.read(), roster.crew.fallback_subagent
        meant = {surface: found.find(name, surface) or found.find(fallback or "", surface) for surface in SURFACES}
        known = {surface: definition for surface, definition in meant.items() if definition is not None}
        if not known:
            raise UnknownAgent(explain_unknown(name, found, None))
        return known

    def decide(self, definition: Definition, surface: str) -> Rights:
        """Return what an agent may use, whether or not it may be run."""
        return decide_tools(definition, self._find_terms(definition, surface))

    def foretell(self, definition: Definition, surface: str) -> tuple[Rights, tuple[str, ...]]:
        """Same, and a description of tools from extensions and servers, which are not started to find out."""
        origins = self._list_origins(definition)
        rights = decide_tools(definition, self._find_terms(definition, surface, origins))
        end = " that only read" if rights.readonly else ""
        more = tuple(f"{name}{end if ' ' in name else ''}" for name in rights.allowed if name in origins)
        own = tuple(name for name in rights.allowed if name not in origins)
        return structs.replace(rights, allowed=own), more

    def list_tools(self, definition: Definition, surface: str) -> list[str]:
        """Return the tools of the next run; empty if the agent cannot be run."""
        if self.tell_off(definition, surface):
            return []
        return list(self.decide(definition, surface).allowed)

    def tell_off(self, definition: Definition, surface: str) -> str:
        """Return why an agent cannot be run on a surface, naming the setting; empty if it can."""
        roster, crew = self._roster, self._roster.crew
        if surface == "subagent" and not crew.has_subagent:
            return self._name("enabled" if not crew.enabled else "subagents.enabled")
        if surface == "dispatch" and not self._switches.is_enabled:
            place = find_switch(roster.paths, trusted=roster.trust.trusted)
            return self._switches.broken or f"subagent.enabled is false in {place}"
        if definition.enabled:
            return ""
        if self._switches.is_agent_off(definition.name):
            place = find_switch(roster.paths, definition.name, trusted=roster.trust.trusted)
            if not place:
                return self._switches.broken
            return f"subagent.disabledAgents.{definition.name} is true in {place}"
        line = definition.lines.get("enabled") or definition.lines.get("disabled")
        return f"{definition.path}{f':{line}' if line else ''} switches it off"

    def explain(self, name: str, tool: str) -> list[tuple[tuple[str, ...], RightsChain]]:
        """Explain why an agent has a tool or not, grouped by surfaces with the same answer. Raises UnknownAgent."""
        answers: list[tuple[tuple[str, ...], RightsChain]] = []
        known = self.find(name)
        for surface in SURFACES:
            chain = self._explain(name, known.get(surface), surface, tool)
            if same := next((item for item in answers if item[1] == chain), None):
                answers[answers.index(same)] = ((*same[0], surface), chain)
            else:
                answers.append(((surface,), chain))
        return answers

    def _explain(self, name: str, definition: Definition | None, surface: str, tool: str) -> RightsChain:
        if definition is None:
            return RightsChain(
                name, tool, False, (ToolReason("agent", False, f"this surface has no agent {quote(name)}"),)
            )
        agent = ToolReason("agent", True, f"{quote(name)} means {definition.name} ({definition.path})")
        if off := self.tell_off(definition, surface):
            return RightsChain(
                definition.name, tool, False, (agent, ToolReason("switches", False, f"it is disabled: {off}"))
            )
        offers = self._list_origins(definition) if tool == SEARCH else self._find_served(tool, definition)
        terms = self._find_terms(definition, surface, offers)
        chain, rights = explain_tool(definition, terms, tool), decide_tools(definition, terms)
        links = (agent, *chain.links)
        if not chain.links[0].holds and (more := self.foretell(definition, surface)[1]):
            text = f"{chain.links[0].sentence}, but it has {', '.join(more)}, which are known only when it runs"
            links = (agent, ToolReason("exists", False, text))
        if chain.is_granted and rights.targets.get(tool, tool) == "bash":
            links += (ToolReason("sandbox", *self._roster.boundaries.foretell(readonly=rights.readonly)),)
        return RightsChain(definition.name, tool, chain.is_granted, links)

    def _find_terms(self, definition: Definition, surface: str, more: Mapping[str, Offer] | None = None) -> Terms:
        own, roster = self._roster.crew, self._roster
        outside = {**list_outside(own), **(more or {})}
        for word in definition.tools.denied:
            outside |= self._find_served(word.removeprefix(f"{SELECTOR}{MCP}/"), definition)
        delegation = {name: offer for name, offer in self._delegation.items() if name != DISPATCH}
        own_tools = roster.loaded.settings.default_tools
        main = {name: BUILTIN_OFFERS[name] for name in own_tools if name in BUILTIN_OFFERS} | outside
        denied = match_denied(own.deny_tools, main, {})
        root = [*(name for name in main if name not in denied), *self._delegation]
        return build_terms(
            self._policy,
            definition,
            surface,
            level=1,
            available={**BUILTIN_OFFERS, **EXTRA_OFFERS, **outside, **delegation},
            parent=Rights(allowed=(*root, *EXTRA_OFFERS)),
            allow_write=own.subagents.allow_write if surface == "subagent" else None,
            extensions=roster.find_extensions(definition),
            switches=self._list_switches(),
        )

    @cached_property
    def _delegation(self) -> dict[str, Offer]:
        """The delegation tools of the surfaces that the main agent is offered."""
        own = self._roster.crew
        surfaces = [name for name in SURFACES if name in own.surfaces or "*" in own.surfaces]
        allowed = [name for name in surfaces if own.allows_surface(name, is_child=False)]
        allowed = [name for name in allowed if name != "dispatch" or self._switches.is_enabled]
        names = [name for surface in allowed for name in self._around.delegation.get(surface, ())]
        return {name: Offer(EFFECTS[name]) for name in names}

    @cached_property
    def _switches(self) -> Switches:
        return load_switches(self._roster.paths, trusted=self._roster.trust.trusted)[0]

    def _list_switches(self) -> dict[str, str]:
        own, roster = self._roster.crew, self._roster
        found = {"user": self._name("denyTools"), "readonlyBash": self._name("subagents.readonlyBash")}
        user_file = find_user_file(roster.paths)
        remedy = f"set it in {user_file}, or use retinue run --write"
        found["write"] = f"{self._name('subagents.allowWrite')}; {remedy}"
        if (origin := roster.loaded.find_origin("defaultTools")) != "default":
            found["parent"] = f"defaultTools is {json.dumps(roster.loaded.settings.default_tools)} in {origin}"
        off = [("enabled", own.enabled)]
        for names, keys in (
            (list_names(family="web"), (*off, ("web.enabled", own.web.enabled))),
            (list_names(family="convert"), (*off, ("convertContent.enabled", own.convert_content.enabled))),
            (
                list_names(family="lsp"),
                (
                    *off,
                    ("lsp.enabled", own.lsp.enabled),
                    ("lsp.tool.enabled", own.lsp.tool.enabled),
                    ("subagents.allowLspTools", own.subagents.allow_lsp_tools),
                    ("subagents.allowedLspActions", bool(own.subagents.allowed_lsp_actions)),
                ),
            ),
        ):
            if key := next((key for key, is_on in keys if not is_on), ""):
                found.update(dict.fromkeys(names, self._name(key)))
        return found

    def _name(self, key: str) -> str:
        """Describe a setting of subagents.json with its value and file."""
        layer = next((layer for layer in reversed(self._around.layers) if key in layer.values), None)
        if layer is None:
            return f"{key} is off by default"
        return f"{key} is {json.dumps(layer.values[key])} in {layer.path or layer.scope}"

    def _list_origins(self, definition: Definition) -> dict[str, Offer]:
        """Return placeholders for unknown tools: all of an extension or server, and those that the agent file names."""
        # An agent that can search for tools gets the deferred ones, and may get no others.
        searches = definition.dialect != "pi" and SEARCH in (definition.tools.names or ())
        kind = "the deferred tools" if searches and not choose_selectors(definition) else "the tools"
        found = {
            f"{kind} of the extension {name}": Offer(Effect.READ, name, is_deferred=searches)
            for name in self._roster.extensions
        }
        for name, server in self._servers.items():
            effect = Effect.READ if server.read_only_tools else Effect.EXECUTE
            own = "the tools" if name in definition.mcp_servers else kind
            offer = Offer(effect, MCP, name, is_deferred=bool(server.deferred_tools))
            found[f"{own} of the server {name}"] = offer
        for word in choose_selectors(definition):
            extension, _, tool = word.removeprefix(SELECTOR).partition("/")
            if extension.strip().lower() in self._roster.extensions and tool and tool not in BUILTIN_OFFERS:
                found[tool] = Offer(Effect.READ, extension.strip().lower())
            found |= self._find_served(word.removeprefix(f"{SELECTOR}{MCP}/"), definition)
        return found

    @cached_property
    def _servers(self) -> "dict[str, McpServer]":
        from retinue.settings.paths import has_files

        roster = self._roster
        if not has_files(roster.paths, trusted=roster.trust.trusted):
            return {}
        from retinue.settings.mcp import load_servers

        ready = load_servers(roster.paths, self._around.environment, trusted=roster.trust.trusted).ready
        return {server.name: server for server in ready}

    def _find_served(self, word: str, definition: Definition) -> dict[str, Offer]:
        """Return a tool of an MCP server as it would be offered, assuming the server has it."""
        if not self._servers:
            return {}
        from retinue.features.mcp.server import fold_name, name_tools

        for server in self._servers.values():
            shown, folded = name_tools(server.name, ("",))[""], f"mcp__{fold_name(server.name)}__"
            for prefix in (f"{server.name}:", f"mcp__{server.name}__", shown, folded):
                tool = word.removeprefix(prefix)
                if prefix == folded:
                    tool = _spell_tool(tool, server, definition)
                if word.startswith(prefix) and tool and not server.is_hidden(tool):
                    return {
                        name_tools(server.name, (tool,))[tool]: Offer(
                            server.find_effect(tool),
                            MCP,
                            server.name,
                            tool,
                            is_deferred=server.is_deferred(tool),
                        )
                    }
        return {}


def _spell_tool(tool: str, server: "McpServer", definition: Definition) -> str:
    """Return a tool name that was written with `_` for `-` in the spelling of the server's entry or the agent file."""
    from retinue.features.mcp.server import fold_name

    own = (*server.read_only_tools, *server.hidden_tools, *server.shown_tools, *server.deferred_tools)
    declared = definition.tools
    words = (*(declared.names or ()), *declared.selectors, *declared.denied)
    known = (*own, *(re.split(r":|/|__", word)[-1] for word in words))
    spelt = next((each for each in known if each != tool and fold_name(each) == tool), tool)
    return tool if tool in own else spelt

"""Roster: the agents of one folder, and what each may use.

Combines definitions, trust, settings and rights; must not know how anything is shown.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic, suggest
from retinue.core.errors import DisabledAgent, UnknownAgent, quote
from retinue.core.tool_table import SURFACES
from retinue.definitions.discover import AgentFolders, is_packaged
from retinue.definitions.registry import DefinitionRegistry, Definitions, is_dispatch_only
from retinue.features.sandbox import Boundaries, try_machine
from retinue.settings.consent import load_accepted
from retinue.settings.files import list_hidden
from retinue.settings.layers import LoadedSettings
from retinue.settings.paths import Paths
from retinue.settings.subagents import SubagentsConfig
from retinue.settings.switches import Switches, load_switches, stamp_switches
from retinue.settings.trust import find_bindings_file
from retinue.tools.policy import Rights, reads_only

if TYPE_CHECKING:
    from retinue.settings.agent_files import AgentFiles
    from retinue.settings.rights_preview import PreviewInput, RightsPreview
    from retinue.tools.rights_chain import RightsChain

MOST_SHOWN = 60
"""Maximum number of names in a message; `retinue agents` lists them all."""
Kind: TypeAlias = Literal["builtin", "overridden", "custom"]
"""Origin of an agent: packaged, a file that overrides a packaged one, or a file of its own."""
_SWITCHES = (
    "enabled",
    "disabled",
    "runner",
    "max_turns",
    "max_tokens_total",
    "max_cost",
    "max_seconds",
    "output_schema",
    "verify",
)
"""Fields of an agent file that disable the agent if they are invalid."""


class AgentDetails(Struct, frozen=True):
    """Everything about one agent."""

    definition: Definition
    rights: Rights
    """On the first surface that knows it by the requested name."""
    elsewhere: tuple[str, ...]
    """Descriptions of its tools from extensions and servers."""
    surfaces: tuple[dict[str, Any], ...]
    """For each surface: the agent that the name means there, and its rights or why it has none."""
    lines: dict[str, str]
    """The line of each field in its file."""
    diagnostics: tuple[Diagnostic, ...]
    model: str | None = None
    """The model it uses; None for its caller's."""
    aliases: tuple[str, ...] = ()
    """The builtin agents that are listed together with it."""

    def to_json(self) -> dict[str, Any]:
        """Return what `retinue agents show --json` prints."""
        definition, rights = self.definition, self.rights
        return {
            **to_row(definition, rights, self.elsewhere, self.model),
            "wishedModel": definition.model if definition.is_model_wish else None,
            "surfaces": list(self.surfaces),
            "aliases": list(self.aliases),
            "modelWish": definition.is_model_wish,
            "promptMode": definition.prompt_mode,
            "prompt": definition.prompt,
            "fields": [
                {
                    "line": item.line,
                    "field": item.field,
                    "text": self.lines.get(item.field, item.field),
                    "status": item.status,
                    "note": item.note,
                }
                for item in definition.fields
            ],
            **to_tools(rights, self.elsewhere),
            "diagnostics": [{**to_problem(item), "field": item.field} for item in self.diagnostics],
        }


class Roster:
    def __init__(
        self,
        paths: Paths,
        loaded: LoadedSettings,
        crew: SubagentsConfig,
        boundaries: Boundaries | None = None,
        around: "PreviewInput | None" = None,
        has_model: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`has_model` tells whether a preferred model is available."""
        self.paths = paths
        self.loaded = loaded
        self._around = around
        self._has_model = has_model
        self.boundaries = boundaries or Boundaries(
            crew.sandbox,
            home=paths.home,
            agent_dir=paths.agent_dir,
            withheld=paths.withheld,
            exposed=paths.exposed,
            find_machine=try_machine,
        )
        self.trust = loaded.trust
        self.configs = paths.configs if loaded.trust.trusted else ()
        self.crew = crew
        self.registry = open_registry(paths, crew, trusted=loaded.trust.trusted)
        self._switched: tuple[Definitions, tuple[Any, ...], Definitions] | None = None
        """Cache: definitions found, modification stamps of the switch files, and the result."""
        self._glance: tuple[asyncio.AbstractEventLoop, Definitions] | None = None

    def read(self) -> Definitions:
        """Return the agents as they are on disk now; CodingCode's switches are applied."""
        found, stamp = self.registry.read(), stamp_switches(self.paths)
        if not any(stamp):
            return found
        if self._switched is None or self._switched[0] is not found or self._switched[1] != stamp:
            switches, problems = load_switches(self.paths, trusted=self.trust.trusted)
            self._switched = (found, stamp, _apply_switches(found, switches, problems))
        return self._switched[2]

    def glance(self) -> Definitions:
        """Same as `read`, but reads once per turn of the event loop, because hundreds of runs may start in one.

        Valid for the next turn too, in which the runs requested in this one begin.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self.read()
        if self._glance is None or self._glance[0] is not loop:
            self._glance = loop, self.read()
            loop.call_soon(loop.call_soon, self._look_away)
        return self._glance[1]

    def _look_away(self) -> None:
        self._glance = None

    def find(self, name: str, surface: str | None = None) -> Definition:
        """Return the agent of this name, even if it is disabled. Raises UnknownAgent."""
        found = self.read().find(name, surface) or self.read().find(name, "dispatch")
        if found is None:
            raise UnknownAgent(explain_unknown(name, self.read(), surface))
        return found

    def find_runnable(self, name: str, surface: str | None = None) -> Definition:
        """Return the agent to run under this name, or the configured fallback. Raises UnknownAgent or DisabledAgent."""
        return find_runnable(self.read(), name, surface, fallback=self.crew.fallback_subagent)

    def find_faults(self, name: str) -> tuple[str, ...]:
        """Return what is wrong with the files that define, or would define, an agent of this name."""
        return tuple(item.message for item in self.glance().find_reasons(name))

    def decide(self, definition: Definition, surface: str = "") -> Rights:
        """Return what an agent may use as a child of the main agent, by default on its first offered surface."""
        return self.forecast.decide(definition, surface or self._find_usual(definition))

    def _find_usual(self, definition: Definition) -> str:
        usual = next((name for name in SURFACES if name in self.crew.surfaces), "fleet")
        return "dispatch" if is_dispatch_only(definition) else usual

    @cached_property
    def forecast(self) -> "RightsPreview":
        """Predictions of the rights of future runs."""
        from retinue.settings.rights_preview import PreviewInput, RightsPreview

        return RightsPreview(self, self._around or PreviewInput())

    def explain(self, name: str, tool: str) -> "list[tuple[tuple[str, ...], RightsChain]]":
        """Explain why an agent has a tool or not, grouped by surfaces with the same answer. Raises UnknownAgent."""
        return self.forecast.explain(name, tool)

    def find_extensions(self, definition: Definition) -> frozenset[str] | None:
        """Return the extensions that a definition may name: existing ones and files it lists. Loads none."""
        listed = () if isinstance(definition.extensions, bool) else definition.extensions
        if not listed and not definition.exclude_extensions:
            return None
        from retinue.features.extensions.candidates import is_path, to_names

        return self.extensions | to_names(filter(is_path, listed))

    @cached_property
    def extensions(self) -> frozenset[str]:
        """The lower-case names of the existing extensions."""
        from retinue.features.extensions.candidates import ExtensionFolders as ExtensionPlaces
        from retinue.features.extensions.candidates import find_extensions

        own = self.paths
        places = ExtensionPlaces(own.cwd, own.agent_dir, own.project, self.trust.trusted, own.home, configs=own.configs)
        return frozenset(candidate.name.lower() for candidate in find_extensions(places).candidates)

    def list_rows(self) -> dict[str, Any]:
        """Return what `retinue agents --json` prints."""
        found = self.read()
        known = [(item, *self._foretell(item)) for item in found.definitions]
        rows = {item.path: to_row(item, rights, more, self._find_model(item)) for item, rights, more in known}
        for group in found.group():
            for item in group if len(group) > 1 else ():
                rows[item.path]["surfaces"] = list(found.find_surfaces(item))
                rows[item.path]["aliases"] = [other.name for other in group if other is not item]
        return {
            "sandbox": self.boundaries.describe(),
            "agents": list(rows.values()),
            "elsewhere": {item.name: list(more) for item, _, more in known if more},
            "toolsBySurface": {
                surface: {item.name: self.forecast.list_tools(item, surface) for item in found.list(surface)}
                for surface in SURFACES
            },
            "diagnostics": [to_problem(item) for item in found.diagnostics],
        }

    def group_rows(self, rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return rows of `list_rows` as people see them; see `Definitions.group`."""
        known = {row["path"]: row for row in rows}
        groups = [[known[item.path] for item in group if item.path in known] for group in self.read().group()]
        return [group for group in groups if group]

    def describe(self, name: str) -> AgentDetails:
        """Describe one agent: the exact name, else one that differs only in case. Raises UnknownAgent."""
        meant = self.forecast.find(name)
        definition = next((item for item in meant.values() if item.name == name), next(iter(meant.values())))
        paths = {definition.path, *definition.shadows}
        problems = tuple(item for item in self.read().diagnostics if item.path in paths)
        surfaces = tuple(
            {
                "surface": surface,
                "agent": other.name,
                "path": other.path,
                "off": self.forecast.tell_off(other, surface),
                **to_tools(*self.forecast.foretell(other, surface)),
            }
            for surface, other in meant.items()
        )
        rights, elsewhere = self._foretell(definition)
        model = self._find_model(definition)
        group = next((each for each in self.read().group() if definition in each), ())
        aliases = tuple(other.name for other in group if other != definition)
        return AgentDetails(definition, rights, elsewhere, surfaces, _read_lines(definition), problems, model, aliases)

    def _find_model(self, definition: Definition) -> str | None:
        """Return the agent's model; None for its caller's, also if a preferred model is not available."""
        wish = definition.model if definition.is_model_wish else None
        return None if wish and not self._has_model(wish) else definition.model

    def _foretell(self, definition: Definition) -> tuple[Rights, tuple[str, ...]]:
        return self.forecast.foretell(definition, self._find_usual(definition))

    def find_kind(self, definition: Definition) -> Kind:
        """Return the origin of an agent, which decides how it can be changed."""
        if definition.source == "builtin":
            return "builtin"
        return "overridden" if any(map(is_packaged, definition.shadows)) else "custom"

    @cached_property
    def files(self) -> "AgentFiles":
        """Operations that change agent files."""
        from retinue.settings.agent_files import AgentFiles  # not imported by programs that only run agents

        return AgentFiles(self)


def open_registry(paths: Paths, crew: SubagentsConfig, *, trusted: bool) -> DefinitionRegistry:
    """Open the definitions of one folder; a changed file is read again."""
    hidden = list_hidden(paths, crew.sandbox.hidden).hidden
    places = AgentFolders(paths.project, paths.agent_dir, paths.home, paths.configs, hidden, crew.agent_sources)
    return DefinitionRegistry(
        places,
        trusted=trusted,
        hide_defaults=crew.disable_default_agents,
        accepted=partial(load_accepted, paths),
        accepted_file=str(find_bindings_file(paths)),
    )


def _apply_switches(found: Definitions, switches: Switches, problems: Sequence[Diagnostic]) -> Definitions:
    definitions = tuple(
        replace(item, enabled=False) if switches.is_agent_off(item.name) else item for item in found.definitions
    )
    return Definitions(definitions, (*found.diagnostics, *problems))


def find_runnable(found: Definitions, name: str, surface: str | None, *, fallback: str | None = None) -> Definition:
    """Return the agent to run under this name. Raises UnknownAgent or DisabledAgent."""
    definition = found.find(name, surface)
    if definition is None and fallback is not None:
        definition = found.find(fallback, surface)
    if definition is None:
        raise UnknownAgent(explain_unknown(name, found, surface))
    if not definition.enabled:
        own = [item for item in found.diagnostics if item.path == definition.path and item.field in _SWITCHES]
        own += [item for item in found.diagnostics if item.code == "switches" and not item.field]
        reasons = "".join(f"\n{text}" for text in definition.faults or [item.message for item in own])
        raise DisabledAgent(f"Agent {quote(definition.name)} is disabled ({definition.path}){reasons}")
    return definition


def explain_unknown(name: str, found: Definitions, surface: str | None) -> str:
    """Return the error message for an unknown agent: existing agents, the closest name, errors in its file."""
    names = [item.name for item in found.list(surface, enabled_only=True)]
    reasons = "".join(f"\n{item.message}" for item in found.find_reasons(name))
    shown, listed = quote(name)[1:-1], ", ".join(names[:MOST_SHOWN])
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"Unknown agent: {shown}. Available agents: {listed}{more}{suggest(name, names)}{reasons}"


def to_row(definition: Definition, rights: Rights, elsewhere: Sequence[str], model: str | None) -> dict[str, Any]:
    """Return one agent for JSON output; `elsewhere` describes tools of extensions and servers."""
    return {
        "name": definition.name,
        "displayName": definition.display_name or definition.name,
        "description": definition.description,
        "source": definition.source,
        "dialect": definition.dialect,
        "path": definition.path,
        "enabled": definition.enabled,
        "readonly": definition.readonly or (not elsewhere and reads_only(rights)),
        "tools": list(rights.allowed),
        "model": model,
        "thinking": definition.thinking,
        "maxTurns": definition.max_turns,
        "completion": definition.completion,
        "shadows": list(definition.shadows),
        "fields": [{"field": item.field, "status": item.status, "note": item.note} for item in definition.fields],
    }


def to_tools(rights: Rights, elsewhere: Sequence[str]) -> dict[str, Any]:
    return {
        "allowed": [{"name": name, "tool": rights.targets.get(name, name)} for name in rights.allowed],
        "elsewhere": list(elsewhere),
        "refused": [{"name": item.name, "code": item.code, "reason": item.sentence} for item in rights.refused],
        "warnings": list(rights.warnings),
    }


def to_problem(item: Diagnostic) -> dict[str, Any]:
    return {
        "path": item.path,
        "line": item.line,
        "severity": item.severity,
        "code": item.code,
        "message": item.message,
    }


def _read_lines(definition: Definition) -> dict[str, str]:
    try:
        with open(definition.path, encoding="utf-8", errors="replace") as file:
            text = file.read(1_000_000).splitlines()
    except OSError:
        return {}
    placed = ((item.field, item.line or 0) for item in definition.fields)
    return {field: text[line - 1].strip() for field, line in placed if 0 < line <= len(text)}

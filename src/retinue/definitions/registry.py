"""The registry of agents: which file wins when several share a name, and lookup by name.

`Definitions` is a frozen snapshot; `DefinitionRegistry` holds the latest one and checks the disk on request. This file
must not know how a file is parsed.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.collector import paused_collector
from retinue.core.definition import FOREIGN, Definition
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.core.tool_table import SURFACES
from retinue.definitions.discover import (
    AgentFolders,
    FoundAgent,
    Listing,
    Root,
    Stamp,
    find_nearest,
    find_roots,
    find_stamp,
    is_same,
    list_deep,
    list_rule_files,
    load_accepted,
    load_root,
    load_rules,
    make_project_root,
)
from retinue.definitions.document import find_skeleton, fold_name
from retinue.definitions.fields import show_place

FLEET_DEFAULTS = frozenset(("general-purpose", "Explore", "Plan"))
DISPATCH = "dispatch"
Agents = list[Definition]
_LEVELS = {"project": 0, "user": 1, "builtin": 2}
_SUFFIX = late_pattern(r"(n?er|e)$")
"""What `explore` and `explorer`, or `plan` and `planner`, do not share."""


class Definitions(Struct, frozen=True, dict=True):
    """All agents at one moment, with every problem, override and skipped file."""

    definitions: tuple[Definition, ...] = ()
    """The active agents, highest precedence first, then by name."""
    diagnostics: tuple[Diagnostic, ...] = ()

    def find(self, name: str, surface: str | None = None) -> Definition | None:
        """Find an agent by exact name, else ignoring case; a level with higher precedence comes first."""
        found = self._find_named(surface).get(fold_name(name), [])
        exact = [item for item in found if item.name == name]
        if not exact or _LEVELS[found[0].source] < _LEVELS[exact[0].source]:
            return found[0] if found else None
        return exact[0]

    def list(self, surface: str | None = None, *, enabled_only: bool = False) -> list[Definition]:
        """The agents of a surface; CodingCode's builtins belong to the `dispatch` surface only."""
        own = self._common
        if surface == DISPATCH:
            special = [item for item in self.definitions if is_dispatch_only(item)]
            hidden = {fold_name(item.name) for item in own if item.source != "builtin"}
            # Before the other builtins, so that on this surface their names win.
            at = sum(item.source != "builtin" for item in own)
            own = own[:at] + [item for item in special if fold_name(item.name) not in hidden] + own[at:]
        return [item for item in own if item.enabled or not enabled_only]

    def find_surfaces(self, item: Definition) -> tuple[str, ...]:
        """The surfaces on which an agent's name means this agent."""
        return tuple(surface for surface in SURFACES if self.find(item.name, surface) is item)

    def group(self) -> Sequence[Sequence[Definition]]:
        """The agents as people see them: builtins that differ only by case or suffix together, the usual one first.

        Without agents that no surface has.
        """
        groups: dict[str, Agents] = {}
        for item in self.definitions:
            if self.find_surfaces(item):
                groups.setdefault(find_family(item), []).append(item)
        return [sorted(group, key=is_dispatch_only) for group in groups.values()]

    @cached_property
    def _common(self) -> Agents:
        return [item for item in self.definitions if not is_dispatch_only(item)]

    @cached_property
    def _named(self) -> dict[str | None, dict[str, Agents]]:
        return {}

    def _find_named(self, surface: str | None) -> dict[str, Agents]:
        """The agents of a surface by folded name, cached: hundreds of lookups may come at once."""
        named = self._named.get(surface)
        if named is None:
            named = self._named[surface] = {}
            for item in self.list(surface):
                named.setdefault(fold_name(item.name), []).append(item)
        return named

    def find_reasons(self, name: str) -> tuple[Diagnostic, ...]:
        """Errors in files that could have defined this agent, to explain why it does not exist."""
        folded = fold_name(name)
        return tuple(
            item
            for item in self.diagnostics
            if item.severity == "error" and fold_name(os.path.basename(item.path).rsplit(".", 1)[0]) == folded
        )


class DefinitionRegistry:
    """The agents of one process, read again when a file has changed."""

    def __init__(
        self,
        places: AgentFolders,
        *,
        trusted: bool,
        hide_defaults: bool = False,
        accepted: Callable[[], Mapping[str, str]] = dict,
        accepted_file: str = "",
    ) -> None:
        """`accepted` returns the project's agent files that the user accepted, with their digests."""
        self._places = places
        self._accepted = accepted
        self._accepted_file = accepted_file
        self._accepted_stamp: Stamp | None = None
        self._trusted = trusted
        self._hide_defaults = hide_defaults
        self._nearest: str | None = None
        self._listings: list[Listing] = []
        self._rule_files = list_rule_files(places)
        self._rule_stamps: tuple[Stamp | None, ...] = ()
        self._current: Definitions | None = None

    def read(self) -> Definitions:
        """The agents on disk now; the same object as before if nothing has changed."""
        seen = find_nearest(self._places), find_stamp(self._accepted_file) if self._accepted_file else None
        stamps = tuple(find_stamp(root.path) for root in self._rule_files)
        if (
            self._current is None
            or stamps != self._rule_stamps
            or seen != (self._nearest, self._accepted_stamp)
            or not all(map(is_same, self._listings))
        ):
            nearest, _ = self._nearest, self._accepted_stamp = seen
            self._rule_stamps = stamps
            self._current = self._load(find_roots(self._places, nearest))
        return self._current

    def _load(self, roots: Sequence[Root]) -> Definitions:
        used = [root for root in roots if self._trusted or root.source != "project"]
        others = [root for root in roots if root not in used and os.path.lexists(root.path)]
        before = {found.path: found for listing in self._listings for found in listing.files}
        with paused_collector():
            every = [deep for root in used for deep in list_deep(root)]
            self._listings = [load_root(root, before) for root in every]
            self._listings = [*self._load_accepted({root.path for root in used}), *self._listings]
        return self._merge(others)

    def _load_accepted(self, read: set[str]) -> Sequence[Listing]:
        """Files that the user accepted individually, in project folders that are not trusted as a whole."""
        accepted = self._accepted()
        folders = sorted({os.path.dirname(path) for path in accepted} - read)
        roots = [make_project_root(folder, self._places) for folder in folders]
        return [load_accepted(root, accepted) for root in roots]

    def _merge(self, skipped: Iterable[Root]) -> Definitions:
        diagnostics = [_tell_untrusted(root) for root in skipped]
        for listing in self._listings:
            diagnostics.extend(listing.diagnostics)
            for found in listing.files:
                diagnostics.extend(found.diagnostics)
        candidates = [
            found.definition
            for listing in self._listings
            for found in listing.files
            if found.definition is not None and not self._is_hidden(found)
        ]
        candidates, rules_told = self._restrict(candidates)
        diagnostics += rules_told
        winners, told = choose_winners(candidates)
        return Definitions(tuple(winners), (*diagnostics, *told))

    def _restrict(self, candidates: Agents) -> tuple[Agents, Sequence[Diagnostic]]:
        """Apply the rules that other tools keep beside their agents."""
        if not any(item.dialect in FOREIGN for item in candidates) or not any(self._rule_stamps):
            return candidates, []
        from retinue.definitions.denials import apply_denials

        rules = [(root.dialect, rule) for root in self._rule_files for rule in load_rules(root)]
        found: Agents = []
        for item in candidates:
            own = [rule for dialect, rule in rules if dialect == item.dialect]
            found.append(apply_denials(item, own) if own else item)
        old = {fault for item in candidates for fault in item.faults}
        return found, [_tell_restricted(item, fault) for item in found for fault in item.faults if fault not in old]

    def _is_hidden(self, found: FoundAgent) -> bool:
        item = found.definition
        return self._hide_defaults and item is not None and item.source == "builtin" and item.name in FLEET_DEFAULTS


def choose_winners(candidates: Iterable[Definition]) -> tuple[list[Definition], list[Diagnostic]]:
    """Choose one definition per name, highest precedence first.

    Names that differ only in case are all kept if they are on the same level.
    """
    groups: dict[str, list[Definition]] = {}
    apart: list[Definition] = []
    for item in candidates:
        if is_dispatch_only(item):
            apart.append(item)
        else:
            groups.setdefault(fold_name(item.name), []).append(item)
    winners: list[Definition] = []
    told: list[Diagnostic] = []
    for group in groups.values():
        kept = _keep_strongest(group)
        hidden = [item for item in group if item not in kept]
        told.extend(_tell_shadowed(item, kept[0]) for item in hidden)
        told.extend(
            _tell_clash(item, kept[0], "differ only by case; each is found by its exact spelling") for item in kept[1:]
        )
        paths = tuple(item.path for item in hidden)
        winners.extend(replace(item, shadows=paths) if paths else item for item in kept)
    told.extend(_find_look_alikes(winners))
    winners.extend(apart)
    winners.sort(key=lambda item: (_LEVELS[item.source], fold_name(item.name), item.name))
    return winners, told


def _keep_strongest(group: list[Definition]) -> list[Definition]:
    """The first of each spelling at the level with the highest precedence."""
    first: dict[str, Definition] = {}
    for item in group:
        if item.source == group[0].source:
            first.setdefault(item.name, item)
    return list(first.values())


def _find_look_alikes(winners: list[Definition]) -> list[Diagnostic]:
    seen: dict[str, Definition] = {}
    told = []
    for item in winners:
        other = seen.setdefault(find_skeleton(item.name), item)
        if fold_name(other.name) != fold_name(item.name):
            told.append(_tell_clash(item, other, "look alike and are different agents"))
    return told


def find_family(item: Definition) -> str:
    """A key that is the same for builtin agents whose names differ only by case or suffix."""
    return _SUFFIX.sub("", fold_name(item.name)) if item.source == "builtin" else item.path


def is_dispatch_only(item: Definition) -> bool:
    """Whether only the `dispatch` surface has this agent."""
    return item.source == "builtin" and item.dialect == "codingcode"


def _tell_shadowed(item: Definition, winner: Definition) -> Diagnostic:
    line = item.lines.get("name", 1)
    where = "packaged agent" if item.source == "builtin" else f"{item.source} agent"
    text = (
        f"{show_place(item.path, line)}: this {where} {quote(item.name)} is hidden by {show_place(winner.path, None)}"
    )
    return Diagnostic(text, item.path, line, "warning", "shadowed", "name")


def _tell_clash(item: Definition, other: Definition, how: str) -> Diagnostic:
    line = item.lines.get("name", 1)
    text = f"{show_place(item.path, line)}: the names {quote(item.name)} and {quote(other.name)} ({other.path}) {how}"
    return Diagnostic(text, item.path, line, "warning", "clash", "name")


def _tell_restricted(item: Definition, fault: str) -> Diagnostic:
    return Diagnostic(f"{show_place(item.path, None)}: {fault}", item.path, None, "error", "restriction")


def _tell_untrusted(root: Root) -> Diagnostic:
    text = f"{show_place(root.path, None)}: not trusted, so only files are read that you accepted one by one"
    return Diagnostic(text, root.path, None, "warning", "untrusted")

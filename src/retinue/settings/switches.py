"""Loads CodingCode's `config.yaml` of the user and the project: switches for agents and hooks, and the step limit.

Other keys of that file belong to another program and are ignored. Must not know who uses the switches.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from retinue.core.diagnostics import Diagnostic, show_value
from retinue.core.errors import ConfigError
from retinue.settings.files import (
    BrokenFile,
    FileBound,
    bind_project,
    bind_user,
    is_there,
    load_entries,
    may_mention,
    read_text,
)
from retinue.settings.paths import Paths

DEFAULT_STEPS = 200
DEFAULT_CONTINUATIONS = 2
MAX_CONTINUATIONS = 100
MAX_STEPS = 100_000
MAX_BYTES = 500_000
RULES_FILE = "rules.md"
_FLAGS = "names, each with true or false"


class Switches(Struct, frozen=True):
    """Both files merged; the project's value wins."""

    is_enabled: bool = True
    """Whether agents are dispatched at all."""
    disabled_agents: Mapping[str, bool] = {}
    """By lower-case name; false means explicitly enabled."""
    disabled_hooks: tuple[Mapping[str, bool], Mapping[str, bool]] = ({}, {})
    """The user's and the project's, by name; which of them a project may set is decided elsewhere."""
    max_steps: int = DEFAULT_STEPS
    """For agents whose file sets no limit."""
    max_continuations: int = DEFAULT_CONTINUATIONS
    """How often hooks may make a run continue that would stop."""
    broken: str = ""
    """What is wrong with an unreadable file that may disable agents: it may have named any of them."""

    def is_agent_off(self, name: str) -> bool:
        return self.disabled_agents.get(name.lower(), bool(self.broken))


def load_switches(paths: Paths, *, trusted: bool) -> tuple[Switches, list[Diagnostic]]:
    """Load both files; unreadable parts are reported and disable the agents that they may have named."""
    problems: list[Diagnostic] = []
    own, theirs = _load(paths.home, problems, None), _Config({}, "", problems)
    if trusted and ".codingcode" in paths.configs and paths.project != paths.home:
        theirs = _load(paths.project, problems, bind_project(paths))
    enabled = theirs.read_switch("subagent", "enabled")
    enabled = own.read_switch("subagent", "enabled") if enabled is None else enabled
    agents = {**own.read_names("subagent", "disabledAgents"), **theirs.read_names("subagent", "disabledAgents")}
    hooks = own.read_flags("hooks", "disabledHooks"), theirs.read_flags("hooks", "disabledHooks")
    steps = theirs.read_count("maxSteps", MAX_STEPS) or own.read_count("maxSteps", MAX_STEPS) or DEFAULT_STEPS
    again = [each.read_count("maxStopContinuations", MAX_CONTINUATIONS, 0) for each in (theirs, own)]
    back = next((number for number in again if number is not None), DEFAULT_CONTINUATIONS)
    # The user's values do not apply where an unreadable project file might contradict them.
    agents = {} if theirs.broken else {name.lower(): value for name, value in agents.items()}
    return Switches(enabled is not False, agents, hooks, steps, back, theirs.broken or own.broken), problems


def find_switch(paths: Paths, agent: str = "", *, trusted: bool) -> str:
    """Return the file that disables an agent, or without a name all dispatching; empty if none does."""
    has_theirs = trusted and ".codingcode" in paths.configs and paths.project != paths.home
    for folder in (*((paths.project,) if has_theirs else ()), paths.home):
        config = _load(folder, [], bind_project(paths) if folder == paths.project else None)
        names = config.read_names("subagent", "disabledAgents")
        said = config.read_switch("subagent", "enabled") is not None
        if agent.lower() in {name.lower() for name in names} if agent else said:
            return config.path
    return ""


def stamp_switches(paths: Paths) -> tuple[tuple[int, int] | None, ...]:
    """Return modification time and size of the two files; None for a missing one."""
    return tuple(_stamp(folder) for folder in (paths.home, paths.project))


def load_rules(paths: Paths, hidden: tuple[str, ...] = ()) -> tuple[tuple[str, ...], list[Diagnostic]]:
    """Load the user's rules for CodingCode agents, `~/.codingcode/rules.md`, unless that file is `hidden`."""
    path = None if paths.home is None else paths.home / ".codingcode" / RULES_FILE
    if path is None or not os.path.lexists(path):
        return (), []
    try:
        text = read_text(path, MAX_BYTES, bind_user(paths, hidden))
    except ConfigError as error:
        return (), [Diagnostic(str(error), str(path), code="unreadable")]
    return ((text,) if text.strip() else ()), []


class _Config:
    """One file while it is read."""

    def __init__(self, raw: Mapping[str, Any], path: str, problems: list[Diagnostic], broken: str = "") -> None:
        self._raw = raw
        self.path = path
        self.broken = broken
        self._problems = problems

    def read_switch(self, section: str, key: str) -> bool | None:
        """Read a switch for all agents; an invalid value switches them off."""
        inside, instead = self._raw.get(section), "no agent is dispatched until this is fixed or removed"
        if inside is None:
            return False if self.broken else None
        if not isinstance(inside, Mapping):
            self._reject(section, inside, f"an object, such as {{{key}: true}}", instead)
            return False
        value = inside.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._reject(f"{section}.{key}", value, "true or false", instead)
        return False

    def read_flags(self, *keys: str) -> dict[str, bool]:
        """Read names with true or false; invalid values are ignored."""
        value = self._find(*keys)
        if not isinstance(value, Mapping):
            if value is not None:
                self._reject(".".join(keys), value, _FLAGS)
            return {}
        for name, flag in value.items():
            if not isinstance(flag, bool):
                self._reject(".".join((*keys, str(name))), flag, "true or false")
        return {str(name): flag for name, flag in value.items() if isinstance(flag, bool)}

    def read_names(self, *keys: str) -> dict[str, bool]:
        """Same, but invalid values switch off: every name in a string or list counts as disabled."""
        value, field = self._find(*keys), ".".join(keys)
        if isinstance(value, str | list):
            self._reject(field, value, _FLAGS, "everything it names is disabled")
            return {name: True for name in ([value] if isinstance(value, str) else value) if isinstance(name, str)}
        doubtful = [name for name in value if not isinstance(value[name], bool)] if isinstance(value, Mapping) else []
        for name in doubtful:
            self._reject(f"{field}.{name}", value[name], "true or false", "it is disabled")
        if doubtful:
            return {str(name): flag is not False for name, flag in value.items()}
        return self.read_flags(*keys)

    def read_count(self, key: str, most: int, least: int = 1) -> int | None:
        value = self._find(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._reject(key, value, f"a whole number from {least} to {most}")
            return None
        return value

    def _find(self, *keys: str) -> Any:
        value: Any = self._raw
        for place, key in enumerate(keys):
            if not isinstance(value, Mapping):
                self._reject(".".join(keys[:place]), value, "an object")
                return None
            value = value.get(key)
            if value is None:
                return None
        return value

    def _reject(self, field: str, value: Any, expected: str, instead: str = "ignored") -> None:
        text = f"{self.path}: {field}: found {show_value(value)}; expected {expected}; {instead}"
        problem = Diagnostic(text, self.path, None, "error", "switches", field)
        # Report only the first problem of a field.
        if all((each.path, each.field) != (self.path, field) for each in self._problems):
            self._problems.append(problem)


def _load(folder: Path | None, problems: list[Diagnostic], bound: FileBound | None) -> _Config:
    path = None if folder is None else folder / ".codingcode" / "config.yaml"
    if path is None or not is_there(path):
        return _Config({}, "", problems)
    from retinue.definitions.fields import to_plain  # YAML is only imported if there is such a file

    try:
        entries = load_entries(path, "switches", bound)
    except BrokenFile as error:
        problem = error.problem
        # Most of the file belongs to another program.
        if may_mention(path, ("subagent",), bound):
            text = f"{problem.message}; since it may disable agents, no agent runs until it is fixed or removed"
            problem = structs.replace(problem, message=text)
        problems.append(problem)
        return _Config({}, str(path), problems, "" if problem is error.problem else problem.message)
    return _Config({entry.key: to_plain(entry.value) for entry in entries}, str(path), problems)


def _stamp(folder: Path | None) -> tuple[int, int] | None:
    if folder is None:
        return None
    path = folder / ".codingcode" / "config.yaml"
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return (0, 0) if is_there(path) else None
    return status.st_mtime_ns, status.st_size

"""Lists and changes single settings of subagents.json for the user: purpose, value, origin.

A change is written to the project's file if that applies and may contain the key, else to the user's, or to the user's
if asked. It changes one key and nothing else in the file. Must not know how settings are shown.
"""

import ast
import inspect
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.errors import UsageError, quote
from retinue.settings.checks import Setting, read_field
from retinue.settings.decisions import load_own, open_change, write_own
from retinue.settings.files import FileBound, bind_project, load_json
from retinue.settings.paths import Paths
from retinue.settings.subagents import (
    SUBAGENT_SETTINGS,
    SubagentsConfig,
    find_accepted,
    find_project_file,
    find_user_file,
    load_subagents,
    trusts_project_file,
)
from retinue.settings.trust import Trust

DEFAULTS = SubagentsConfig()
# fmt: off
AT_ONCE = frozenset((
    "maxSpawnsPerTree", "maxConcurrentScheduled", "limits.wallSeconds", "limits.idleSeconds", "limits.toolSeconds",
    "maxConcurrent", "defaultMaxTurns", "graceTurns", "defaultJoinMode", "schedulingEnabled", "scopeModels",
    "waitTimeoutSeconds", "fallbackSubagent", "widgetDisplayMode", "widgetMode", "fleetView", "outputTranscript",
    "notifications", "rollupChildUsage", "commands.enabled", "approvals",
))
# fmt: on
"""Settings that change in an open session; others change in the next one."""
FIRST = (
    "approvals", "notifications", "maxConcurrent", "defaultMaxTurns", "budget.costUsd", "limits.wallSeconds",
    "defaultJoinMode", "runner", "surfaces",
)  # fmt: skip
"""What people change most, in this order; `list` puts it before the rest."""


class Preference(Struct, frozen=True):
    key: str
    help: str
    value: Any
    origin: str
    """`default`, `environment`, or the file that decides."""
    accepts: str
    choices: tuple[Any, ...] = ()
    """All accepted values, if they are few."""

    @property
    def acts_at_once(self) -> bool:
        return self.key in AT_ONCE

    @property
    def shown(self) -> str:
        """The value as a user writes it."""
        return show(self.value)

    def show(self, value: Any) -> str:
        return show(value)

    @property
    def ends_group(self) -> bool:
        """Whether it is the last of those that people change most."""
        return self.key == FIRST[-1]

    @property
    def is_default(self) -> bool:
        return self.origin == "default"


class Preferences:
    def __init__(
        self, paths: Paths, environment: Mapping[str, str], trust: Trust, flags: Mapping[str, Any] | None = None
    ) -> None:
        """`flags` are values of this process, which override all files."""
        self._paths = paths
        self._environment = environment
        self._trust = trust
        self._flags = flags

    @property
    def path(self) -> str:
        """The file that changes are written to, except those allowed only in the user's file."""
        return str(find_project_file(self._paths) if self._has_project_file else find_user_file(self._paths))

    @property
    def project_path(self) -> str:
        """The project's file, which need not exist."""
        return str(find_project_file(self._paths))

    @property
    def user_path(self) -> str:
        return str(find_user_file(self._paths))

    @property
    def files(self) -> tuple[str, str]:
        return self.project_path, self.user_path

    @property
    def asks_first(self) -> bool:
        """Whether a project that nobody has decided about gets a file only if the user agrees."""
        return self._trust.is_open and not self._trust.trusted and self._may_create

    def list(self) -> list[Preference]:
        """All settings: first what people change most, then the rest in the order of the reference."""
        loaded = load_subagents(self._paths, self._environment, trusted=self._trust.trusted, flags=self._flags)
        origins: dict[str, str] = {}
        for layer in loaded.layers:
            origins.update(dict.fromkeys(layer.values, layer.path or layer.scope))
        return [
            Preference(
                item.key,
                find_help(item.field),
                read_field(loaded.settings, item),
                origins.get(item.key, "default"),
                item.check.accepts,
                item.check.choices,
            )
            for item in sorted(
                SUBAGENT_SETTINGS, key=lambda item: FIRST.index(item.key) if item.key in FIRST else len(FIRST)
            )
        ]

    def find(self, key: str) -> Preference:
        """Return one setting. Raises UsageError."""
        _find(key)
        return next(item for item in self.list() if item.key == key)

    def read(self, key: str, text: str) -> tuple[Any, Any]:
        """Parse the user's text; returns the value for the file and the value for the program. Raises UsageError."""
        setting = _find(key)
        value = _read(text, setting)
        complaints: list[str] = []

        def report(rest: str, bad: object, accepts: str) -> None:
            complaints.append(f"{key}{rest}: found {quote(str(bad))}; expected {accepts}")

        try:
            converted = setting.check.convert(value, report)
        except (ValueError, OverflowError):
            raise UsageError(f"{key}: found {quote(text)}; expected {setting.check.accepts}") from None
        if complaints:
            raise UsageError(complaints[0])
        return value, converted

    def needs_consent(self, key: str, text: str) -> bool:
        """Return whether a new project file could hold this, if the user accepts it. Raises UsageError."""
        return self.asks_first and _find(key).accepts_from_project(self.read(key, text)[0])

    def change(self, key: str, text: str, *, accepts_file: bool = False, for_user: bool = False) -> None:
        """Set a value from the user's text, with `for_user` in the user's file. Raises UsageError or ConfigError.

        With `accepts_file`, a project that nobody has decided about gets a file, and only this file is accepted.
        """
        value, wanted = self.read(key, text)
        if for_user:
            write_keys(find_user_file(self._paths), {key: value})
            return
        is_projects = self._has_project_file or (accepts_file and self.needs_consent(key, text))
        if is_projects and _find(key).accepts_from_project(value):
            self._write_project({key: value})
            return
        if self._has_project_file:
            self._drop_project(key)  # the project's value would win
        if self.find(key).value != wanted:
            write_keys(find_user_file(self._paths), {key: value})

    def reset(self, key: str, *, for_user: bool = False) -> None:
        """Remove a key from the file that decides it, or from the user's. Raises UsageError or ConfigError."""
        if self.find(key).origin == self.project_path and not for_user:
            self._drop_project(key)
        else:
            write_keys(find_user_file(self._paths), {}, (key,))

    @property
    def _has_project_file(self) -> bool:
        """Whether the project's file applies, or would if it existed."""
        is_trusted = self._trust.trusted
        if trusts_project_file(self._paths, trusted=is_trusted) or (is_trusted and self._may_create):
            return True
        sha256 = find_accepted(self._paths)
        return bool(sha256) and not load_json(find_project_file(self._paths), sha256=sha256)[1]

    @property
    def _may_create(self) -> bool:
        path = find_project_file(self._paths)
        # An agent could have made the link to choose where we write.
        is_free = not os.path.lexists(path) and not path.parent.is_symlink()
        return is_free and path != find_user_file(self._paths)

    def _drop_project(self, key: str) -> None:
        if os.path.lexists(self.project_path):
            self._write_project({}, (key,))

    def _write_project(self, values: Mapping[str, Any], dropped: Iterable[str] = ()) -> None:
        """Change the project's file; a new file, and one that was accepted before, is accepted as it is then."""
        from retinue.settings.entry_approval import accept_file

        path = find_project_file(self._paths)
        is_own = not path.exists() or bool(find_accepted(self._paths))
        write_keys(path, values, dropped, bound=bind_project(self._paths))
        if is_own:
            accept_file(self._paths, path)


def write_keys(
    path: Path, values: Mapping[str, Any], dropped: Iterable[str] = (), *, bound: FileBound | None = None
) -> None:
    """Set and remove keys of a file without changing the rest. Raises ConfigError."""
    with open_change(path):
        before = content = load_own(path, bound=bound)
        for key, value in values.items():
            content = _set(content, key.split("."), value, is_kept=True)
        for key in dropped:
            content = _set(content, key.split("."), None, is_kept=False)
        if content != before:
            write_own(path, content)


def show(value: Any) -> str:
    """Format a value as a user writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value) or "(empty)"
    return str(value)


@cache
def find_help(field: str) -> str:
    """Return the help of a setting: the docstring under its field."""
    holder: Any = DEFAULTS
    *sections, name = field.split(".")
    for section in sections:
        holder = getattr(holder, section)
    kind: type[Struct] = type(holder)
    return _read_docs(kind).get(name, "")


@cache
def _read_docs(kind: type[Struct]) -> dict[str, str]:
    try:
        body = ast.parse(inspect.getsource(kind)).body[0]
    except OSError:
        return {}  # installed without its sources
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def _find(key: str) -> Setting:
    found = next((item for item in SUBAGENT_SETTINGS if item.key == key), None)
    if found is None:
        raise UsageError(f"unknown setting {quote(key)}")
    return found


def _read(text: str, setting: Setting) -> Any:
    """Interpret the user's text by the type of the setting's default."""
    default, word = read_field(DEFAULTS, setting), text.strip()
    for choice in setting.check.choices:
        if word.lower() in (show(choice).lower(), json.dumps(choice).strip('"').lower()):
            return choice
    if isinstance(default, tuple) and not word.startswith("["):
        return [part.strip() for part in word.split(",") if part.strip()]
    if isinstance(default, str) and not isinstance(default, bool):
        return word
    if word.lower() in ("", "none", "null"):
        return None
    try:
        return json.loads(word)
    except ValueError:
        return word


def _set(content: dict[str, Any], keys: list[str], value: Any, *, is_kept: bool) -> dict[str, Any]:
    """Return the content with one key set or removed; a section that becomes empty is removed too."""
    key, rest = keys[0], keys[1:]
    if not rest:
        left = {name: item for name, item in content.items() if name != key or is_kept}
        return {**left, key: value} if is_kept else left
    below = content.get(key)
    section = _set(below if isinstance(below, dict) else {}, rest, value, is_kept=is_kept)
    if not section and not is_kept:
        return {name: item for name, item in content.items() if name != key}
    return {**content, key: section}

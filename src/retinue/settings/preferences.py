"""The settings of subagents.json one by one, for people: what each is for, who decides it, and changing them.

A change goes into the project's file where that counts and may say it, else into the user's. It writes one key and
leaves everything else in the file as it is. Must not know how settings are shown.
"""

import ast
import inspect
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from retinue.core.errors import ConfigError, UsageError, quote
from retinue.sessions.files import make_private
from retinue.settings.checks import Setting, read_field
from retinue.settings.decisions import hold_lock, replace_own
from retinue.settings.files import Bound, bind_project, load_json
from retinue.settings.paths import Paths
from retinue.settings.subagents import (
    CREW_SETTINGS,
    CrewSettings,
    find_accepted,
    find_project_file,
    find_user_file,
    load_crew,
    trusts_project_file,
)
from retinue.settings.trust import Trust

DEFAULTS = CrewSettings()
# fmt: off
AT_ONCE = frozenset((
    "maxSpawnsPerTree", "maxConcurrentScheduled", "limits.wallSeconds", "limits.idleSeconds", "limits.toolSeconds",
    "maxConcurrent", "defaultMaxTurns", "graceTurns", "defaultJoinMode", "schedulingEnabled", "scopeModels",
    "waitTimeoutSeconds", "fallbackSubagent", "widgetDisplayMode", "widgetMode", "fleetView", "outputTranscript",
    "rollupChildUsage", "commands.enabled",
))
# fmt: on
"""What a session that goes on takes over; the rest counts from the next session on."""


class Preference(Struct, frozen=True):
    """One setting as it is now."""

    key: str
    help: str
    value: Any
    origin: str
    """`default`, `environment`, or the file that decides."""
    accepts: str
    choices: tuple[Any, ...] = ()
    """All it may be, where that is a short list."""

    @property
    def acts_at_once(self) -> bool:
        """Whether a change counts in the session that is open."""
        return self.key in AT_ONCE

    @property
    def shown(self) -> str:
        """The value as a person writes it."""
        return show(self.value)

    def show(self, value: Any) -> str:
        """Another value of it, written the same way."""
        return show(value)

    @property
    def is_default(self) -> bool:
        """Whether nobody has decided it."""
        return self.origin == "default"


class Preferences:
    """The settings of one user in one folder."""

    def __init__(
        self, paths: Paths, environment: Mapping[str, str], trust: Trust, flags: Mapping[str, Any] | None = None
    ) -> None:
        """`flags` are values of this process, which win over all files."""
        self._paths = paths
        self._environment = environment
        self._trust = trust
        self._flags = flags

    @property
    def path(self) -> str:
        """The file that changes go to, but for those that only the user's file may say."""
        return str(find_project_file(self._paths) if self._has_project_file else find_user_file(self._paths))

    @property
    def project_path(self) -> str:
        """The project's file, which need not be there."""
        return str(find_project_file(self._paths))

    def list(self) -> list[Preference]:
        """All of them as they are now, in the order of the reference."""
        loaded = load_crew(self._paths, self._environment, trusted=self._trust.trusted, flags=self._flags)
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
            for item in CREW_SETTINGS
        ]

    def find(self, key: str) -> Preference:
        """One of them as it is now. Raises UsageError."""
        found = next((item for item in self.list() if item.key == key), None)
        if found is None:
            raise UsageError(f"{quote(key)} is no setting")
        return found

    def read(self, key: str, text: str) -> tuple[Any, Any]:
        """What a person wrote, as a file has it and as the program uses it. Raises UsageError."""
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
        """Whether the project could have a file that says this, which counts only if the user accepts it: nobody has
        decided about the folder yet. Raises UsageError."""
        is_undecided = self._trust.is_open and not self._trust.trusted and self._may_create
        return is_undecided and _may_project_say(_find(key), self.read(key, text)[0])

    def change(self, key: str, text: str, *, accepts_file: bool = False) -> None:
        """Set one, from what a person wrote. Raises UsageError or ConfigError.

        With `accepts_file` the project gets a file where nobody has decided about it, and this one file counts.
        """
        value, wanted = self.read(key, text)
        is_projects = self._has_project_file or (accepts_file and self.needs_consent(key, text))
        if is_projects and _may_project_say(_find(key), value):
            self._write_project({key: value})
            return
        if self._has_project_file:
            self._drop_project(key)  # it would win
        if self.find(key).value != wanted:
            write_keys(find_user_file(self._paths), {key: value})

    def reset(self, key: str) -> None:
        """Take one out of the file that decides it. Raises UsageError or ConfigError."""
        if self.find(key).origin == self.project_path:
            self._drop_project(key)
        else:
            write_keys(find_user_file(self._paths), {}, (key,))

    @property
    def _has_project_file(self) -> bool:
        """Whether the project's file counts, or would if it was there."""
        is_trusted = self._trust.trusted
        if trusts_project_file(self._paths, trusted=is_trusted) or (is_trusted and self._may_create):
            return True
        sha256 = find_accepted(self._paths)
        return bool(sha256) and not load_json(find_project_file(self._paths), sha256=sha256)[1]

    @property
    def _may_create(self) -> bool:
        path = find_project_file(self._paths)
        # An agent may have made the link, and chosen where we write.
        is_free = not os.path.lexists(path) and not path.parent.is_symlink()
        return is_free and path != find_user_file(self._paths)

    def _drop_project(self, key: str) -> None:
        if os.path.lexists(self.project_path):
            self._write_project({}, (key,))

    def _write_project(self, values: Mapping[str, Any], dropped: Iterable[str] = ()) -> None:
        """Change the project's file. One that is new, or that the user accepted before, counts as it is then."""
        from retinue.settings.entry_approval import accept_file

        path = find_project_file(self._paths)
        is_own = not path.exists() or bool(find_accepted(self._paths))
        write_keys(path, values, dropped, bound=bind_project(self._paths))
        if is_own:
            accept_file(self._paths, path)


def _may_project_say(setting: Setting, value: Any) -> bool:
    is_refused = setting.user_only or (setting.off_only and value is True)
    return not is_refused and value not in setting.user_values


def write_keys(
    path: Path, values: Mapping[str, Any], dropped: Iterable[str] = (), *, bound: Bound | None = None
) -> None:
    """Set some keys of a file and take others out; all else in it stays as it is. Raises ConfigError."""
    try:
        make_private(path.parent)
        with hold_lock(path):
            raw, problems = load_json(path, bound=bound)
            if problems:
                raise ConfigError(f"{problems[0].message}; repair or remove the file first")
            content = raw or {}
            for key, value in values.items():
                content = _set(content, key.split("."), value, is_kept=True)
            for key in dropped:
                content = _set(content, key.split("."), None, is_kept=False)
            if content != (raw or {}):
                replace_own(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def show(value: Any) -> str:
    """A value as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value) or "(empty)"
    return str(value)


@cache
def find_help(field: str) -> str:
    """What a setting is for: the docstring under its field."""
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
    found = next((item for item in CREW_SETTINGS if item.key == key), None)
    if found is None:
        raise UsageError(f"{quote(key)} is no setting")
    return found


def _read(text: str, setting: Setting) -> Any:
    """What a person means by some words, read by what the setting usually is."""
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
    """The content with one key set or taken out; a section that has become empty goes too."""
    key, rest = keys[0], keys[1:]
    if not rest:
        left = {name: item for name, item in content.items() if name != key or is_kept}
        return {**left, key: value} if is_kept else left
    below = content.get(key)
    section = _set(below if isinstance(below, dict) else {}, rest, value, is_kept=is_kept)
    if not section and not is_kept:
        return {name: item for name, item in content.items() if name != key}
    return {**content, key: section}

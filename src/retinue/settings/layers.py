"""Merges settings in layers: defaults < user file < trusted project file < environment < flags.

An invalid field is dropped with a message, never a whole file. Must not know what a setting does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, show_value, suggest
from retinue.core.errors import quote
from retinue.settings.checks import Setting, build_settings, read_field
from retinue.settings.files import bind_project, load_json
from retinue.settings.paths import Paths
from retinue.settings.schema import PI_KEYS, SETTINGS, Settings
from retinue.settings.trust import Trust, decide_trust

T = TypeVar("T", bound=Struct)
Scope = Literal["user", "project", "environment", "flag"]


class Layer(Struct, frozen=True):
    """The validated values of one source, by key."""

    scope: Scope
    values: Mapping[str, Any]
    path: str = ""


class LoadedSettings(Struct, frozen=True):
    """The effective settings, the trust in the project, and problems."""

    settings: Settings
    trust: Trust
    diagnostics: tuple[Diagnostic, ...]
    layers: tuple[Layer, ...]

    def find_origin(self, key: str) -> str:
        """Return where a setting comes from: a file, `environment`, `flag` or `default`."""
        for layer in reversed(self.layers):
            if key in layer.values:
                return layer.path or layer.scope
        return "default"


def load_settings(
    paths: Paths,
    environment: Mapping[str, str],
    *,
    flags: Mapping[str, Any] | None = None,
    approve: bool | None = None,
) -> LoadedSettings:
    """Read all layers; `flags` win. Nothing of the project is read before it is trusted."""
    diagnostics = check_switches(environment)
    layers: list[Layer] = []
    last = [Layer("flag", {key: value for key, value in flags.items() if value is not None})] if flags else []

    def add_file(path: Any, scope: Scope) -> None:
        raw, problems = load_json(path, bound=bind_project(paths) if scope == "project" else None)
        diagnostics.extend(problems)
        if raw is not None:
            layer, problems = read_layer(SETTINGS, _migrate(raw), scope, str(path), ignore=PI_KEYS)
            layers.append(layer)
            diagnostics.extend(problems)

    add_file(paths.user_settings, "user")
    user = merge_layers(Settings(), SETTINGS, [*layers, *last])
    trust = decide_trust(paths, approve=approve, default=user.default_project_trust)
    diagnostics.extend(trust.diagnostics)
    if trust.trusted and ".pi" in paths.configs and paths.project_settings != paths.user_settings:
        add_file(paths.project_settings, "project")
    if session_dir := environment.get("PI_CODING_AGENT_SESSION_DIR"):
        layers.append(Layer("environment", {"sessionDir": session_dir}))
    layers += last
    settings = merge_layers(Settings(), SETTINGS, layers)
    return LoadedSettings(settings, trust, tuple(diagnostics), tuple(layers))


def check_switches(environment: Mapping[str, str]) -> list[Diagnostic]:
    """Warn about on/off variables with an invalid value."""
    return [
        Diagnostic(
            f"environment: {name}: found {quote(environment[name])}; expected 1, true, yes, 0, false or no",
            severity="warning",
            code="environment",
            field=name,
        )
        for name in ("PI_OFFLINE", "RETINUE_NO_LOCAL")
        if environment.get(name, "").lower() not in ("", "1", "true", "yes", "0", "false", "no")
    ]


def read_layer(
    known: Iterable[Setting],
    raw: Mapping[str, Any],
    scope: Scope,
    path: str,
    *,
    ignore: frozenset[str] = frozenset(),
) -> tuple[Layer, list[Diagnostic]]:
    """Read the settings of one parsed file: valid fields are kept, each invalid one is reported."""
    reader = _LayerReader({item.key: item for item in known}, scope, path, ignore)
    reader.read_object(raw, "")
    return Layer(scope, reader.values, path), reader.diagnostics


def merge_layers(defaults: T, known: Sequence[Setting], layers: Sequence[Layer]) -> T:
    """Return the effective settings: a later layer replaces the one below or, for some settings, is merged with it."""
    by_key = {item.key: item for item in known}
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.values.items():
            item = by_key[key]
            if item.check.merge is None:
                merged[key] = value
            else:
                below = merged[key] if key in merged else read_field(defaults, item)
                merged[key] = item.check.merge(below, value)
    return build_settings(defaults, known, merged)


class _LayerReader:
    def __init__(self, known: Mapping[str, Setting], scope: Scope, path: str, ignore: frozenset[str]) -> None:
        self.known = known
        self.sections = {key[:dot] for key in (*known, *ignore) for dot, char in enumerate(key) if char == "."}
        self.scope = scope
        self.path = path
        self.ignore = ignore
        self.values: dict[str, Any] = {}
        self.diagnostics: list[Diagnostic] = []

    def read_object(self, raw: Mapping[str, Any], prefix: str) -> None:
        for name, value in raw.items():
            key = prefix + name
            if key in self.known:
                self._read_setting(self.known[key], value)
            elif key in self.sections and isinstance(value, dict):
                self.read_object(value, key + ".")
            elif key in self.sections:
                if value is not None:
                    self._refuse(key, value, "an object")
            elif key not in self.ignore:
                self._warn_unknown(key)

    def _read_setting(self, item: Setting, value: Any) -> None:
        if value is None and not item.check.takes_null:
            return
        if self.scope == "project" and not item.accepts_from_project(value):
            reason = "it can only be set in the user's own settings file"
            if item.limit.off_only:
                reason = "a project can switch it off but not on"
            elif item.limit.user_values:
                reason = f"only the user's own settings file can choose {show_value(value)}"
            self._add(f"{self.path}: {item.key}: ignored, {reason}", item.key, "user-only", "warning")
            return
        try:
            self.values[item.key] = item.check.convert(
                value, lambda rest, bad, accepts: self._refuse(item.key + rest, bad, accepts)
            )
        except (ValueError, OverflowError):
            self._refuse(item.key, value, item.check.accepts)

    def _refuse(self, key: str, value: object, accepts: str) -> None:
        self._add(f"{self.path}: {key}: found {show_value(value)}; expected {accepts}", key, "bad-value", "error")

    def _warn_unknown(self, key: str) -> None:
        section = key[: key.rfind(".") + 1]
        siblings = {
            name[len(section) :].split(".")[0] for name in (*self.known, *self.ignore) if name.startswith(section)
        }
        near = suggest(key[len(section) :], sorted(siblings))
        self._add(f"{self.path}: unknown setting {quote(key)}{near}", key, "unknown-key", "warning")

    def _add(self, message: str, key: str, code: str, severity: Literal["error", "warning"]) -> None:
        self.diagnostics.append(Diagnostic(message, self.path, None, severity, code, key))


def _migrate(raw: dict[str, Any]) -> dict[str, Any]:
    """Rename a key that pi still accepts under its old name."""
    if "queueMode" in raw and "steeringMode" not in raw:
        return {**raw, "steeringMode": raw["queueMode"]}
    return raw

"""Loads models.json and auth.json, builds the model registry, and chooses the first model of a session."""

import os
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import ValidationError, convert

from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import ModelError, quote
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.core.redaction import is_secret_name
from retinue.models.auth import Credential, Keys, parse_auth
from retinue.models.catalog import Provider, load_catalog, move_provider
from retinue.models.config import parse_models
from retinue.models.model_list import ModelList, add_listed
from retinue.models.registry import ModelRegistry
from retinue.models.resolve import ModelChoice, RequestedModel, match_pattern
from retinue.sessions.log import Session
from retinue.settings.files import load_json
from retinue.settings.paths import Paths
from retinue.settings.request import Request
from retinue.settings.schema import Settings

if TYPE_CHECKING:
    from retinue.models.pool import PoolConfig

_SECRETS = ("key", "access", "refresh")
"""Secret fields of an entry in auth.json."""
_TRUE = ("1", "true", "yes")


def load_registry(
    paths: Paths, environment: Mapping[str, str], *, api_key: str | None = None, offline: bool = False
) -> tuple[ModelRegistry, list[Diagnostic]]:
    """Load all providers and keys of this user. Runs no command and contacts no server yet."""
    credentials, diagnostics = load_credentials(paths.auth_file)
    raw, problems = load_json(paths.models_file, comments=True)
    diagnostics = [*problems, *diagnostics]
    providers = {
        id: move_provider(each, {**environment, **credentials[id].env} if id in credentials else environment)
        for id, each in load_catalog().items()
    }
    diagnostics += _add_listed(paths, providers, raw or {})
    if raw is not None:
        providers, problems = parse_models(raw, str(paths.models_file), providers)
        diagnostics.extend(problems)
    keys = Keys(environment, credentials, flag=api_key, auth_file=str(paths.auth_file))
    if not is_local_allowed(environment, offline=offline):
        return ModelRegistry(providers, keys), diagnostics
    return ModelRegistry(providers, keys, find_local=_find_local), diagnostics


def to_pool_config(settings: Settings) -> "PoolConfig":
    from retinue.models.pool import PoolConfig
    from retinue.models.transport import Timing

    return PoolConfig(
        Timing(settings.http_idle_timeout_ms / 1000, (settings.retry.provider_timeout_ms or 0) / 1000),
        settings.retry.to_policy(),
        settings.thinking_budgets,
        settings.block_images,
    )


def find_list_file(paths: Paths) -> Path:
    """Return the file with the models that providers have listed."""
    return paths.own_dir / "listed-models.json"


def _add_listed(paths: Paths, providers: dict[str, Provider], raw: Mapping[str, Any]) -> list[Diagnostic]:
    """Add the models that a provider has listed, unless its URL has changed since."""
    path = find_list_file(paths)
    found, problems = load_json(path)
    try:
        stored = convert((found or {}).get("providers") or {}, dict[str, ModelList])
    except ValidationError as error:
        text = f"{path}: is ignored ({error}); to write it again: retinue models --refresh"
        return [Diagnostic(text, str(path), severity="warning", code="listed-models")]
    changed = raw.get("providers")
    for id, models in stored.items():
        entry = changed.get(id) if isinstance(changed, dict) else None
        url = entry.get("baseUrl") if isinstance(entry, dict) else None
        if (provider := providers.get(id)) is not None and (url or provider.base_url) == models.base_url:
            providers[id] = add_listed(provider, models)
    return problems


def list_stored(paths: Paths) -> list[str]:
    """Return every secret in auth.json, including those of logins and of unusable entries."""
    raw, _ = load_json(paths.auth_file)
    entries = [entry for entry in (raw or {}).values() if isinstance(entry, dict)]
    pairs = [pair for entry in entries for pair in entry.items()]
    named = [value for name, value in pairs if name in _SECRETS or is_secret_name(name)]
    given = [each for _, value in pairs if isinstance(value, dict) for each in value.values()]
    # Values with these prefixes name a variable or a command; they are not secrets.
    return [text for text in (*named, *given) if isinstance(text, str) and not text.startswith(("$", "!"))]


def _find_local() -> Sequence[ModelInfo]:
    from retinue.models.local import find_local_models  # only needed when nothing else decides

    return find_local_models()


def is_offline(environment: Mapping[str, str], *, offline: bool = False) -> bool:
    """Return whether `--offline` or `PI_OFFLINE` forbids network access that the user did not ask for."""
    return offline or environment.get("PI_OFFLINE", "").lower() in _TRUE


def is_local_allowed(environment: Mapping[str, str], *, offline: bool = False) -> bool:
    """Return whether to look for model servers on this machine."""
    return not is_offline(environment, offline=offline) and environment.get("RETINUE_NO_LOCAL", "").lower() not in _TRUE


def load_credentials(path: Path) -> tuple[dict[str, Credential], list[Diagnostic]]:
    raw, diagnostics = load_json(path)
    if raw is None:
        return {}, diagnostics
    credentials, problems = parse_auth(raw, str(path))
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.name == "posix" else 0
    if mode & 0o077:
        text = f"{path}: other users can read or write it (mode {mode:04o}); run chmod 600 {path}"
        problems.append(Diagnostic(text, str(path), severity="warning", code="mode"))
    return credentials, diagnostics + problems


def to_wishes(request: Request, settings: Settings, session: Session | None, registry: ModelRegistry) -> RequestedModel:
    """Return what decides the model; a resumed session keeps its usable model unless the request names another."""
    default, scope = (settings.default_model, settings.default_provider), request.models or settings.enabled_models
    if request.inherited_model and request.inherited_provider:
        default, scope = (request.inherited_model, request.inherited_provider), request.models
    if request.models:
        _check_scope(request.models, registry)
    used = session.choice[0] if session else None
    if request.model is None and request.provider is None and used is not None:
        try:
            # Exactly that model, not one with a similar name.
            return RequestedModel(model=registry.find(*used).info.ref)
        except ModelError as error:
            trouble = f"the model of this session cannot be used ({error}); "
        # The scope decides the first model of a new session only.
        return RequestedModel(None, None, *default, () if default[0] else tuple(scope), trouble)
    return RequestedModel(request.model, request.provider, *default, tuple(scope))


def _check_scope(patterns: Sequence[str], registry: ModelRegistry) -> None:
    """Raise ModelError if a flag matches no model at all."""
    if not any(match_pattern(pattern, registry.names) for pattern in patterns):
        raise ModelError(f"--models: {quote(', '.join(patterns))} matches no available model; see retinue models")


def read_level(session: Session) -> ThinkingLevel | None:
    """Return the thinking level of a resumed session; None if it has none."""
    chosen = session.choice[1]
    return next((level for level in THINKING_LEVELS if level == chosen), None)


def choose_start_model(
    definition: Definition, request: Request, settings: Settings, session: Session, registry: ModelRegistry
) -> ModelChoice:
    """Choose the main agent's first model: from the request, its agent file, the session or the settings.

    Raises ModelError.
    """
    from retinue.engine.model_choice import choose_main_model

    choose = cache(lambda: registry.choose(to_wishes(request, settings, session, registry)))
    if request.model or request.provider:
        return choose()
    return choose_main_model(definition, registry, choose, request.models or settings.enabled_models) or choose()


def choose_start_level(
    definition: Definition, request: Request, settings: Settings, session: Session, choice: ModelChoice | None = None
) -> ThinkingLevel:
    """Choose the main agent's first thinking level; `choice` is its model, None if the caller supplied the model."""
    from retinue.engine.model_choice import choose_level

    named = request.thinking or choose_level(definition.thinking)
    if choice is None:
        return named or read_level(session) or settings.default_thinking_level
    kept = read_level(session) or request.inherited_thinking or settings.default_thinking_level
    return named or choice.thinking or kept

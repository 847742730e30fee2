"""Parse models.json (pi's schema): changes to built-in providers and models, and new ones.

An invalid field is dropped with a diagnostic; if dropping it could send a key to the wrong host, the provider is
dropped instead. This file must not read files or resolve keys.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from retinue.core.diagnostics import Diagnostic
from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo, PriceTier
from retinue.models.catalog import APIS, Provider, is_url
from retinue.models.compat import take_compat
from retinue.models.fields import ConfigObject

# Wire formats that pi supports and we do not: valid in the file, but unusable.
_FOREIGN_APIS = ("azure-openai-responses", "openai-codex-responses", "bedrock-converse-stream", "mistral-conversations")
_PROVIDER_KEYS = (
    "name", "baseUrl", "apiKey", "api", "oauth", "headers", "compat", "authHeader", "models", "modelOverrides",
)  # fmt: skip
_OVERRIDE_KEYS = (
    "name", "reasoning", "thinkingLevelMap", "input", "inputLimits", "cost", "promptCache", "contextWindow",
    "maxTokens", "samplingParams", "samplingParamsByThinkingLevel", "headers", "compat",
)  # fmt: skip
_MODEL_KEYS = ("id", "api", "baseUrl", *_OVERRIDE_KEYS)
_PRICES = {"input": "input", "output": "output", "cacheRead": "cache_read", "cacheWrite": "cache_write"}
_MERGED_COMPAT = ("openRouterRouting", "vercelGatewayRouting", "chatTemplateKwargs", "chatTemplateArgs")


def parse_models(
    raw: Mapping[str, Any], path: str, builtin: Mapping[str, Provider]
) -> tuple[dict[str, Provider], list[Diagnostic]]:
    """The built-in providers with the file's changes, then the providers it adds, in its order."""
    found = dict(builtin)
    top = ConfigObject(raw, path, "", [])
    top.check_keys(("$schema", "providers"))
    providers = top.take_object("providers")
    if raw.get("providers") is None:
        top.complain("providers", "is missing", "an object with an entry for each provider")
    for id in [id for id, entry in providers.values.items() if entry is not None] if providers else ():
        fields = providers.take_object(id) if providers else None
        if fields is None:
            _leave_out(id, path, found)
        elif not id.strip() or "/" in id.strip("/"):
            fields.complain("", "is not a valid provider id", "an id without spaces or slashes")
        else:
            _read_provider(id, fields, found)
    return found, top.diagnostics


def _leave_out(id: str, path: str, found: dict[str, Provider]) -> None:
    """Disable the provider: since its entry is invalid, a call might go to the wrong host."""
    base = found.get(id) or Provider(id, id, "", "")
    found[id] = structs.replace(base, trouble=f"provider {id} is left out: its entry in {path} is invalid")


def _read_provider(id: str, fields: ConfigObject, found: dict[str, Provider]) -> None:
    fields.check_keys(_PROVIDER_KEYS)
    base = found.get(id)
    before = len(fields.diagnostics)
    base_url = fields.take_text("baseUrl", is_url, "an http:// or https:// address")
    api_key = fields.take_text("apiKey")
    headers = _take_headers(fields)
    auth_header = fields.take_flag("authHeader")
    if len(fields.diagnostics) > before:
        _leave_out(id, fields.path, found)
        fields.complain("", "is skipped until this is fixed", "a valid baseUrl, apiKey, headers and authHeader")
        return
    if fields.values.get("oauth") is not None:
        fields.complain("oauth", "is not supported", "apiKey", severity="warning")
    api = _take_api(fields)
    compat = take_compat(fields)
    name = fields.take_text("name")
    start = base or Provider(id, name or id, api or "", base_url or "")
    start = structs.replace(
        start, base_url=base_url or start.base_url, api=start.api if base else api or "", name=name or start.name
    )
    if base_url:
        start = structs.replace(start, base_url_from="", trouble="")
    added = [
        model for item in fields.take_objects("models") if (model := _read_model(item, start, api, compat)) is not None
    ]
    overrides = fields.take_object("modelOverrides")
    changed = {ref: overrides.take_object(ref) for ref in overrides.values} if overrides else {}
    model_headers = _read_model_headers(fields, changed)
    changes = {ref: _read_changes(item) for ref, item in changed.items() if item is not None}

    def build() -> tuple[ModelInfo, ...]:
        models = {model.id: model for model in (base.models if base else ())}
        for model in models.values():
            update = {"base_url": base_url or model.base_url, "compat": merge_compat(model.compat, compat)}
            models[model.id] = structs.replace(model, **update)
        models.update((model.id, model) for model in added)
        for ref in changes.keys() & models.keys():
            models[ref] = _apply_changes(models[ref], changes[ref])
        return tuple(models.values())

    if not base and not added:
        fields.complain("models", "is missing or has no valid entry", "at least one model")
        return
    found[id] = structs.replace(
        start,
        build_models=build,
        api_key=api_key if api_key is not None else start.api_key,
        headers=headers,
        model_headers=model_headers,
        auth_header=bool(auth_header),
        # An explicit list of models is complete.
        takes_new=start.takes_new and not added,
    )


def _read_model(fields: ConfigObject, provider: Provider, api: str | None, compat: dict[str, Any]) -> ModelInfo | None:
    fields.check_keys(_MODEL_KEYS)
    id = fields.take_text("id")
    if id is None:
        if fields.values.get("id") is None:
            fields.complain("id", "is missing", "the model's id in the API")
        return None
    before = len(fields.diagnostics)
    base_url = fields.take_text("baseUrl", is_url, "an http:// or https:// address") or provider.base_url
    own_api = _take_api(fields) or api or provider.api
    if len(fields.diagnostics) > before:
        return None
    if own_api not in APIS:
        if own_api not in _FOREIGN_APIS:
            fields.complain("api", "is missing", "one of " + ", ".join(APIS) + " here or at the provider")
        return None
    if not base_url:
        fields.complain("baseUrl", "is missing", "an http:// or https:// address here or at the provider")
        return None
    plain = ModelInfo(provider=provider.id, id=id, api=own_api, name=id, base_url=base_url, compat=compat)
    return _apply_changes(plain, _read_changes(fields, complete=True))


def _read_changes(fields: ConfigObject, *, complete: bool = False) -> dict[str, Any]:
    """The model properties of an entry, by ModelInfo field."""
    if not complete:
        fields.check_keys(_OVERRIDE_KEYS)
    changes: dict[str, Any] = {
        "name": fields.take_text("name"),
        "reasoning": fields.take_flag("reasoning"),
        "context_window": fields.take_count("contextWindow", 1),
        "max_tokens": fields.take_count("maxTokens", 1),
        "thinking_level_map": _take_levels(fields),
        "input": _take_input(fields),
        "cost": _take_price(fields, complete=complete),
        "sampling_params": _take_dict(fields, "samplingParams") or None,
        "compat": take_compat(fields) or None,
    }
    if fields.values.get("samplingParamsByThinkingLevel") is not None:
        fields.complain("samplingParamsByThinkingLevel", "is not used", "samplingParams", severity="warning")
    return {name: value for name, value in changes.items() if value is not None}


def _apply_changes(model: ModelInfo, changes: dict[str, Any]) -> ModelInfo:
    merged = dict(changes)
    if "compat" in changes:
        merged["compat"] = merge_compat(model.compat, changes["compat"])
    if "cost" in changes:
        merged["cost"] = structs.replace(model.cost, **changes["cost"])
    for name in ("thinking_level_map", "sampling_params"):
        if name in changes:
            merged[name] = {**getattr(model, name), **changes[name]}
    return structs.replace(model, **merged)


def merge_compat(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge field by field, including fields that are objects of options."""
    merged = {**below, **above}
    for name in _MERGED_COMPAT:
        if isinstance(below.get(name), dict) and isinstance(above.get(name), dict):
            merged[name] = {**below[name], **above[name]}
    return merged


def _read_model_headers(fields: ConfigObject, changed: Mapping[str, ConfigObject | None]) -> dict[str, dict[str, str]]:
    entries = [(item.values.get("id"), item) for item in fields.peek_objects("models")]
    entries.extend((ref, item) for ref, item in changed.items() if item is not None)
    found: dict[str, dict[str, str]] = {}
    for ref, item in entries:
        if isinstance(ref, str) and (headers := _take_headers(item)):
            found[ref] = {**found.get(ref, {}), **headers}
    return found


def _take_headers(fields: ConfigObject) -> dict[str, str]:
    raw = fields.take_object("headers")
    if raw is None:
        return {}
    found = {}
    for name in raw.values:
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raw.complain(name, "is not a header name", "letters, digits and -")
        elif (value := raw.take_text(name, str.isprintable, "text without line breaks")) is not None:
            found[name] = value
    return found


def _take_api(fields: ConfigObject) -> str | None:
    api = fields.take_text("api")
    if api is None or api in APIS:
        return api
    if api in _FOREIGN_APIS:
        fields.complain("api", f"is {api}, which retinue does not support", ", ".join(APIS), severity="warning")
        return api
    fields.refuse("api", "one of " + ", ".join(APIS))
    return None


def _take_dict(fields: ConfigObject, name: str) -> dict[str, Any]:
    found = fields.take_object(name)
    return dict(found.values) if found else {}


def _take_levels(fields: ConfigObject) -> dict[str, str | None] | None:
    raw = fields.take_object("thinkingLevelMap")
    if raw is None:
        return None
    raw.check_keys(THINKING_LEVELS)
    found: dict[str, str | None] = {}
    for level in raw.values.keys() & set(THINKING_LEVELS):
        if raw.values[level] is None:
            found[level] = None
        elif (value := raw.take_text(level, accepted="text, or null for a level the model does not have")) is not None:
            found[level] = value
    return found


def _take_input(fields: ConfigObject) -> tuple[str, ...] | None:
    value = fields.values.get("input")
    if value is None:
        return None
    if not isinstance(value, list) or not value or any(item not in ("text", "image") for item in value):
        fields.refuse("input", '["text"] or ["text", "image"]')
        return None
    return tuple(dict.fromkeys(value))


def _take_price(fields: ConfigObject, *, complete: bool) -> dict[str, Any] | None:
    raw = fields.take_object("cost")
    if raw is None:
        return None
    raw.check_keys((*_PRICES, "tiers"))
    found: dict[str, Any] = {}
    for key, name in _PRICES.items():
        if (number := raw.take_number(key)) is not None:
            found[name] = number
    missing = [key for key in _PRICES if raw.values.get(key) is None]
    if complete and missing:
        raw.complain("", f"lacks {', '.join(missing)}", "US dollars per million tokens for each", severity="warning")
    if raw.values.get("tiers") is not None:
        found["tiers"] = tuple(tier for item in raw.take_objects("tiers") if (tier := _read_tier(item)) is not None)
    return found


def _read_tier(fields: ConfigObject) -> PriceTier | None:
    fields.check_keys(("inputTokensAbove", *_PRICES))
    above = fields.take_count("inputTokensAbove", 0)
    prices = {name: number for key, name in _PRICES.items() if (number := fields.take_number(key)) is not None}
    if above is None or "input" not in prices or "output" not in prices:
        fields.complain("", "is incomplete", "inputTokensAbove, input and output")
        return None
    return PriceTier(above, **prices)

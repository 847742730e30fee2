import pytest

from retinue.models.auth import Credential, Keys
from retinue.models.catalog import load_catalog
from retinue.models.config import parse_models
from retinue.models.registry import ModelRegistry
from retinue.models.resolve import Names, resolve_model

ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "a",
    "OPENAI_API_KEY": "o",
    "MOCK_TOKEN": "m",
    "TEAM": "t",
    "GROQ_API_KEY": "g",
    "HOME": "/home/x",
}


def build(api_key: str | None = None, headers: dict | None = None, **keys) -> ModelRegistry:
    fields = {"apiKey": api_key} if api_key else {}
    provider = {"baseUrl": "http://x/v1", "api": "openai-completions", "models": [{"id": "m-1"}], **fields}
    raw = {"providers": {"mock": {**provider, "headers": headers or {}}}}
    providers, _ = parse_models(raw, "models.json", dict(load_catalog()))
    return ModelRegistry(providers, Keys(ENVIRONMENT, **keys))


def export(registry: ModelRegistry, provider: str) -> dict[str, str]:
    return registry.export_key(registry.providers[provider].models[0])


def test_variable_of_the_provider_is_exported():
    registry = build()
    assert (export(registry, "anthropic"), export(registry, "openai")) == (
        *({"ANTHROPIC_API_KEY": "a"}, {"OPENAI_API_KEY": "o"}),
    )


@pytest.mark.parametrize(
    ("key", "exported"), [("$MOCK_TOKEN", {"MOCK_TOKEN": "m"}), ("literal", {}), ("!echo x", {}), ("$GONE", {})]
)
def test_named_variables_are_exported(key, exported):
    assert export(build(key), "mock") == exported


def test_variables_of_a_bridged_provider_are_exported():
    info = resolve_model("bridge/groq:llama-4", Names((), {})).info
    assert build().export_key(info) == {"GROQ_API_KEY": "g"}


def test_variables_of_headers_are_exported():
    assert export(build("literal", {"X-Team": "${TEAM}"}), "mock") == {"TEAM": "t"}


def test_stored_key_needs_no_variable():
    registry = build(credentials={"anthropic": Credential("stored")})
    assert export(registry, "anthropic") == {}


def test_key_of_the_flag_goes_by_variable():
    registry = build(flag="f")
    registry.keys.bind_flag("anthropic")
    assert list(export(registry, "anthropic").values()) == ["f"]
    assert export(registry, "openai") == {"OPENAI_API_KEY": "o"}

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.model import ModelInfo, Price, PriceTier
from retinue.models.catalog import Provider, load_catalog
from retinue.models.config import _MODEL_KEYS, _PROVIDER_KEYS, parse_models

BASE = ModelInfo(
    "house",
    "one",
    "anthropic-messages",
    "One",
    "https://house.example",
    compat={"supportsStore": True, "zaiToolStream": True},
)
HOUSE = {
    "house": Provider("house", "House", "anthropic-messages", "https://house.example", lambda: (BASE,), ("HOUSE",))
}
OWN = {"baseUrl": "http://127.0.0.1:1/v1", "api": "openai-completions", "apiKey": "k"}


def parse(providers: Any, known: Any = None) -> tuple[dict[str, Provider], list[str]]:
    found, diagnostics = parse_models({"providers": providers}, "f", HOUSE if known is None else known)
    return found, [item.message for item in diagnostics]


def test_new_provider_has_pis_defaults() -> None:
    found, problems = parse({"mine": {**OWN, "models": [{"id": "m"}]}})
    assert problems == []
    assert found["mine"].models == (
        ModelInfo(
            "mine", "m", "openai-completions", "m", "http://127.0.0.1:1/v1", context_window=128_000, max_tokens=16_384
        ),
    )
    assert (found["mine"].api_key, list(found)) == ("k", ["house", "mine"])


def test_every_field_of_a_model_is_read() -> None:
    tier = {"inputTokensAbove": 10, "input": 5, "output": 6, "cacheRead": 7, "cacheWrite": 8}
    entry = {
        "id": "m", "name": "M", "api": "google-generative-ai", "baseUrl": "https://x", "reasoning": True,
        "thinkingLevelMap": {"off": None, "high": "HIGH"}, "input": ["text", "image"], "contextWindow": 5,
        "maxTokens": 4.0,
        "cost": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "tiers": [tier]},
        "samplingParams": {"top_p": 1}, "compat": {"supportsStore": True}, "inputLimits": {}, "promptCache": {},
    }  # fmt: skip
    found, problems = parse({"mine": {**OWN, "compat": {"thinkingFormat": "zai"}, "models": [entry]}})
    assert problems == []
    assert found["mine"].models == (
        ModelInfo(
            provider="mine", id="m", api="google-generative-ai", name="M", base_url="https://x", reasoning=True,
            thinking_level_map={"off": None, "high": "HIGH"}, input=("text", "image"),
            cost=Price(1, 2, 3, 4, (PriceTier(10, 5, 6, 7, 8),)), context_window=5, max_tokens=4,
            compat={"thinkingFormat": "zai", "supportsStore": True}, sampling_params={"top_p": 1},
        ),
    )  # fmt: skip


def test_entry_changes_a_builtin_provider() -> None:
    override = {"maxTokens": 7, "compat": {"zaiToolStream": False}, "cost": {"input": 9}}
    found, problems = parse(
        {
            "house": {
                "baseUrl": "https://proxy",
                "compat": {"supportsStore": False},
                "modelOverrides": {"one": override, "no": {}},
            }
        }
    )
    assert problems == []
    assert found["house"].models == (
        ModelInfo(
            "house", "one", "anthropic-messages", "One", "https://proxy", max_tokens=7,
            compat={"supportsStore": False, "zaiToolStream": False}, cost=Price(9),
        ),
    )  # fmt: skip
    assert found["house"].env == ("HOUSE",)


def test_model_with_known_id_replaces_it() -> None:
    found, _ = parse({"house": {"models": [{"id": "one", "maxTokens": 3}, {"id": "two"}]}})
    assert [(model.id, model.api, model.max_tokens) for model in found["house"].models] == [
        ("one", "anthropic-messages", 3),
        ("two", "anthropic-messages", 16_384),
    ]


def test_headers_are_kept_for_later() -> None:
    models = [{"id": "m", "headers": {"B": "!b"}}]
    found, _ = parse({"mine": {**OWN, "headers": {"A": "$A"}, "authHeader": True, "models": models}})
    mine = found["mine"]
    assert (mine.headers, mine.model_headers, mine.auth_header) == ({"A": "$A"}, {"m": {"B": "!b"}}, True)
    assert mine.models[0].headers == {}


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ({"baseUrl": 5}, "baseUrl: found 5; expected an http:// or https:// address"),
        ({"baseUrl": "house.example"}, "baseUrl: found 'house.example'; expected an http:// or https:// address"),
        ({"baseUrl": "http://x:99999"}, "baseUrl: found 'http://x:99999'; expected an http:// or https:// address"),
        ({"apiKey": ["sk-1"]}, "apiKey: found an array; expected text that is not empty"),
        ({"apiKey": ""}, "apiKey: found a string; expected text that is not empty"),
        ({"headers": {"A": 7}}, "headers.A: found a number; expected text without line breaks"),
        ({"headers": {"A": "secret\n"}}, "headers.A: found a string; expected text without line breaks"),
        ({"authHeader": "yes"}, "authHeader: found 'yes'; expected true or false"),
    ],
)
def test_provider_with_doubtful_access_is_left_out(provider: Any, problem: str) -> None:
    found, problems = parse({"house": provider})
    assert (problems[0], len(problems)) == (f"f: providers.house.{problem}", 2)
    assert found["house"].trouble == "provider house is left out: its entry in f is invalid"


def test_wrong_fields_are_dropped_and_told() -> None:
    entry = {
        "id": "m", "contextWindow": -1, "reasoning": 1, "input": ["sound"], "thinkingLevelMap": {"low": 2, "lo": "x"},
        "cost": {"input": "1", "output": 1, "cacheRead": 0, "cacheWrite": 0}, "maxToken": 4,
    }  # fmt: skip
    found, problems = parse({"mine": {**OWN, "models": [entry, {"name": "x"}, 7]}})
    where = "f: providers.mine.models"
    assert problems == [
        f"{where}[2]: found a number; expected an object",
        "f: unknown field 'providers.mine.models[0].maxToken' (did you mean 'maxTokens'?)",
        f"{where}[0].reasoning: found 1; expected true or false",
        f"{where}[0].contextWindow: found -1; expected a whole number from 1",
        "f: unknown field 'providers.mine.models[0].thinkingLevelMap.lo' (did you mean 'low'?)",
        f"{where}[0].thinkingLevelMap.low: found 2; expected text, or null for a level the model does not have",
        f'{where}[0].input: found an array; expected ["text"] or ["text", "image"]',
        f"{where}[0].cost.input: found '1'; expected a number from 0",
        f"{where}[1].id: is missing; expected the model's id in the API",
    ]
    assert [(model.id, model.context_window, model.cost) for model in found["mine"].models] == [
        ("m", 128_000, Price(0, 1))
    ]


def test_differences_are_checked_by_name() -> None:
    compat = {
        "supportStore": True,
        "supportsStore": "no",
        "thinkingFormat": "loud",
        "openRouterRouting": {"only": ["a"]},
    }
    found, problems = parse({"mine": {**OWN, "compat": compat, "models": [{"id": "m"}]}})
    assert [item.partition(": ")[2].partition(", openrouter")[0] for item in problems] == [
        "unknown field 'providers.mine.compat.supportStore' (did you mean 'supportsStore'?)",
        "providers.mine.compat.supportsStore: found 'no'; expected true or false",
        "providers.mine.compat.thinkingFormat: found 'loud'; expected one of openai",
    ]
    assert found["mine"].models[0].compat == {"openRouterRouting": {"only": ["a"]}}


def test_new_provider_needs_address_and_api() -> None:
    found, problems = parse({"a": {"models": [{"id": "m"}]}, "b": {**OWN, "api": "smoke-signals", "models": []}})
    assert list(found) == ["house"]
    assert [item.partition(";")[0] for item in problems] == [
        "f: providers.a.models[0].api: is missing",
        "f: providers.a.models: is missing or has no valid entry",
        "f: providers.b.api: found 'smoke-signals'",
        "f: providers.b.models: is missing or has no valid entry",
    ]


def test_api_only_pi_speaks_is_said() -> None:
    found, problems = parse({"b": {**OWN, "api": "bedrock-converse-stream", "models": [{"id": "m"}]}})
    assert list(found) == ["house"]
    assert "bedrock-converse-stream, which retinue does not support" in problems[0]


def test_missing_or_wrong_providers_is_told() -> None:
    assert [item.message for item in parse_models({}, "f", HOUSE)[1]] == [
        "f: providers: is missing; expected an object with an entry for each provider"
    ]
    assert parse([])[1] == ["f: providers: found an array; expected an object"]
    found, problems = parse({"house": 3})
    assert (bool(found["house"].trouble), problems) == (
        True,
        ["f: providers.house: found a number; expected an object"],
    )


def test_secrets_stay_out_of_every_text() -> None:
    raw = {
        **OWN,
        "apiKey": "sk-secret",
        "headers": {"A": "sk-secret"},
        "models": [{"id": "m", "headers": {"B": "sk-secret"}}],
    }
    found, problems = parse({"mine": raw})
    assert "sk-secret" not in repr(found) + repr(problems) + repr(found["mine"].models)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*_MODEL_KEYS, "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
ENTRIES = st.dictionaries(
    st.sampled_from(_PROVIDER_KEYS), VALUES | st.sampled_from(["https://x", "openai-completions"])
)


@given(st.dictionaries(st.sampled_from(["house", "mine", "a.b", "", "x/y"]), ENTRIES | VALUES, max_size=3))
def test_any_object_gives_providers(providers: Any) -> None:
    found, problems = parse(json.loads(json.dumps(providers)))
    assert all(isinstance(model, ModelInfo) for provider in found.values() for model in provider.models)
    assert all(text.startswith("f: ") and "\n" not in text for text in problems)


def test_pi_example_works_on_the_catalogue() -> None:
    found, problems = parse({"anthropic": {"baseUrl": "https://proxy.example.com/v1"}}, load_catalog())
    assert problems == []
    assert {model.base_url for model in found["anthropic"].models} == {"https://proxy.example.com/v1"}

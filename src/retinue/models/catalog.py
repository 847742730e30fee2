"""The built-in catalogue of providers and models, loaded from catalog.json on request.

This file must not know keys, users' files or how a name is matched.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from msgspec import Struct, structs

from retinue.core.errors import quote
from retinue.core.model import ModelInfo, Price, PriceTier

APIS = ("openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai")
# Servers silently cut the input when the window is full; a low guess compacts too early rather than too late.
GUESSED_WINDOW, GUESSED_OUTPUT = 32_768, 8_192
OFFLINE_MODEL = ModelInfo(
    provider="offline",
    id="rules",
    api="offline",
    name="Offline rules (no language model)",
    context_window=1_000_000,
)


# The variable that the provider's own SDK reads, and the path that this SDK appends to the URL.
BASE_URLS = {
    "anthropic": ("ANTHROPIC_BASE_URL", ""),
    "openai": ("OPENAI_BASE_URL", ""),
    "google": ("GOOGLE_GEMINI_BASE_URL", "/v1beta"),
    "groq": ("GROQ_BASE_URL", "/openai/v1"),
    "cerebras": ("CEREBRAS_BASE_URL", "/v1"),
    "together": ("TOGETHER_BASE_URL", "/v1"),
    "fireworks": ("FIREWORKS_BASE_URL", "/inference/v1"),
    "zai": ("ZAI_BASE_URL", ""),
}


class LocalServer(Struct, frozen=True):
    """A program that serves models on this machine, and its default port."""

    provider: str
    port: int
    name: str


SERVERS = (
    LocalServer("ollama", 11434, "Ollama"),
    LocalServer("lmstudio", 1234, "LM Studio"),
    LocalServer("llamacpp", 8080, "llama.cpp"),
)


class Provider(Struct, frozen=True, dict=True):
    """A model provider. Keys and headers are unresolved, as written in models.json: never show them."""

    id: str
    name: str
    api: str
    base_url: str
    build_models: Callable[[], tuple[ModelInfo, ...]] = tuple
    env: tuple[str, ...] = ()
    """Variables that may hold the key; the first one that is set is used."""
    default: str = ""
    """Id of the default model; empty: the first."""
    needs_key: bool = True
    api_key: str | None = None
    headers: Mapping[str, str] = {}
    model_headers: Mapping[str, Mapping[str, str]] = {}
    auth_header: bool = False
    """Also send the key as `Authorization: Bearer`."""
    takes_new: bool = False
    """Whether it may have models that are not listed here."""
    base_url_from: str = ""
    """The variable that sets its base URL; empty if none does."""
    trouble: str = ""
    """Why it must not be called at all, for the user; empty if it may."""

    def __repr__(self) -> str:
        return f"Provider({self.id!r}, {self.api!r}, {self.base_url!r})"

    @cached_property
    def models(self) -> tuple[ModelInfo, ...]:
        """All models, newest first where that is known."""
        return self.build_models()

    def guess(self, id: str, relative: ModelInfo | None) -> ModelInfo:
        """An unlisted model, modelled after `relative`; with small limits if there is none."""
        if relative is not None:
            return structs.replace(relative, id=id, name=id)
        models, first = self.models, self.models[0]
        shared = {
            name: value
            for name, value in first.compat.items()
            if all(model.compat.get(name) == value for model in models)
        }
        plain = ModelInfo(self.id, id, first.api, id, first.base_url, compat=shared)
        return structs.replace(plain, context_window=GUESSED_WINDOW, max_tokens=GUESSED_OUTPUT)

    @property
    def default_model(self) -> ModelInfo | None:
        return next((model for model in self.models if model.id == self.default), next(iter(self.models), None))


def find_relative(id: str, models: Sequence[ModelInfo]) -> ModelInfo | None:
    """The model with the most similar id, or None."""
    from difflib import get_close_matches  # slow import, needed only for unlisted models

    by_id = {model.id.lower(): model for model in reversed(models)}
    close = get_close_matches(id.lower(), list(by_id), n=1, cutoff=0.6)
    return by_id[close[0]] if close else None


def move_provider(provider: Provider, environment: Mapping[str, str]) -> Provider:
    """Apply the base URL from the environment, as the provider's SDK does; sets `trouble` if it is not a URL."""
    variable, tail = BASE_URLS.get(provider.id, ("", ""))
    value = environment.get(variable, "").strip().rstrip("/")
    if not value:
        return provider
    if not is_url(value):
        text = (
            f"provider {provider.id} is left out: {variable} is {quote(value)}; expected an http:// or https:// address"
        )
        return structs.replace(provider, trouble=text)
    url = value if value.endswith(tail) else value + tail

    def build() -> tuple[ModelInfo, ...]:
        return tuple(structs.replace(model, base_url=url) for model in provider.models)

    return structs.replace(provider, base_url=url, build_models=build, base_url_from=variable)


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # Accessing the port validates it.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:
        return False


def hide_login(url: str) -> str:
    """Remove user and password from a URL, for display."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url


@cache
def load_catalog() -> Mapping[str, Provider]:
    """The built-in providers by id, in the order in which keys are searched; `offline` is last."""
    data = orjson.loads(Path(__file__).with_name("catalog.json").read_bytes())
    providers = {id: _build_provider(id, raw, data) for id, raw in data["providers"].items()}
    providers["offline"] = Provider(
        "offline", "Offline", OFFLINE_MODEL.api, "", lambda: (OFFLINE_MODEL,), default="rules", needs_key=False
    )
    return providers


def _build_provider(id: str, raw: dict[str, Any], data: dict[str, Any]) -> Provider:
    def build() -> tuple[ModelInfo, ...]:
        return tuple(_build_model(id, raw, row, data) for row in raw["models"])

    named = (id, raw["name"], raw["api"], raw["baseUrl"])
    return Provider(*named, build, tuple(raw["env"]), raw["default"], takes_new=True)


def _build_model(provider: str, raw: dict[str, Any], row: list[Any], data: dict[str, Any]) -> ModelInfo:
    # Rows end at their last non-empty value; scripts/catalog.py writes them.
    full: list[Any] = row + ["", "", 0, 0, "", 0, 0, 0][len(row) :]
    id, name, window, output, flags, price, levels, compat = full
    return ModelInfo(
        provider=provider,
        id=id,
        api=raw["api"],
        name=name or id,
        base_url=raw["baseUrl"],
        reasoning="r" in flags,
        thinking_level_map=data["maps"][levels],
        input=("text", "image") if "i" in flags else ("text",),
        cost=_build_price(price) if price else Price(),
        context_window=window,
        max_tokens=output,
        compat={**raw["compat"], **data["compats"][compat]},
    )


def _build_price(price: list[Any]) -> Price:
    into, out, cache_read, cache_write, *tiers = price
    return Price(into, out, cache_read, cache_write, tuple(PriceTier(*tier) for tier in tiers))

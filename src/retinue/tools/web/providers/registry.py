"""The search providers, by hand, and which of them can be asked. Pure."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from retinue.core.errors import quote
from retinue.tools.web.options import KEYLESS, ProviderOptions
from retinue.tools.web.providers.base import Access, Provider, SearchFailed
from retinue.tools.web.providers.brave import Brave
from retinue.tools.web.providers.ddgs import Ddgs
from retinue.tools.web.providers.openserp import OpenSerp
from retinue.tools.web.providers.searxng import Searxng
from retinue.tools.web.providers.serper import Serper
from retinue.tools.web.providers.tavily import Tavily

PROVIDERS: Mapping[str, Provider] = {
    "tavily": Tavily(),
    "serper": Serper(),
    "brave": Brave(),
    "openserp": OpenSerp(),
    "searxng": Searxng(),
    "ddgs": Ddgs(),
}
TIERS = (("tavily", "serper", "brave"), ("openserp", "searxng"), ("ddgs",))
"""Those that are paid for, those of one's own, and what is always there."""


def find_access(name: str, options: Mapping[str, ProviderOptions], environment: Mapping[str, str]) -> Access:
    """How to reach a provider. Raises SearchFailed that says what is missing."""
    provider = PROVIDERS.get(name)
    if provider is None:
        raise SearchFailed(
            "INVALID_INPUT", f"unsupported search provider {quote(name)}; there are {', '.join(PROVIDERS)}"
        )
    own = options.get(name, ProviderOptions())
    if name == "ddgs":
        return Access(own.base_url or KEYLESS)
    if not own.enabled:
        raise SearchFailed("INVALID_INPUT", f"{provider.label} is not enabled: set web.{name}.enabled")
    if not _is_web(own.base_url):
        raise SearchFailed("INVALID_INPUT", f"web.{name}.baseUrl is {quote(own.base_url)}: expected an http(s) address")
    key = environment.get(own.key_name, "").strip() if own.key_name else ""
    if provider.needs_key and not key:
        raise SearchFailed("PROVIDER_AUTH_FAILED", f"{provider.label} needs a key in the variable {own.key_name}")
    return Access(own.base_url, key, own.engine)


def order_providers(priority: tuple[str, ...]) -> list[str]:
    """All that `auto` may try, in order; what the priority does not name is not tried."""
    return [name for tier in TIERS for name in priority if name in tier]


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False

"""Queries the chosen search provider, or one after another until one answers, and caches the answers.

Must not know tools or tool results.
"""

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from retinue.tools.outbound.client import HttpClient
from retinue.tools.outbound.guard import check_secrets
from retinue.tools.outbound.request import RequestBounds, RequestFailed
from retinue.tools.web.options import WebOptions
from retinue.tools.web.providers import PROVIDERS, ProviderAccess, SearchFailed, SearchHit, find_access, order_providers
from retinue.tools.web.session import QueueFull, Throttle

_KINDS = {
    "timeout": "WEB_SEARCH_TIMEOUT",
    "network": "NETWORK_ERROR",
    "url": "INVALID_INPUT",
    "scheme": "INVALID_INPUT",
}
_STATUSES = {
    401: ("PROVIDER_AUTH_FAILED", "refuses to answer"),
    403: ("PROVIDER_AUTH_FAILED", "refuses to answer"),
    # DuckDuckGo's response to clients that it takes for robots.
    202: ("PROVIDER_RATE_LIMITED", "limits the rate of searches"),
    429: ("PROVIDER_RATE_LIMITED", "limits the rate of searches"),
    **dict.fromkeys((500, 502, 503, 504), ("PROVIDER_UNAVAILABLE", "has an error")),
}


class SearchAnswer(NamedTuple):
    query: str
    hits: tuple[SearchHit, ...]
    provider: str


class SearchCache:
    """The most recent answers by key; the least recently used is dropped first."""

    def __init__(self, entries: int, keep_s: float) -> None:
        self._entries = entries
        self._keep_s = keep_s
        self._values: OrderedDict[str, tuple[float, SearchAnswer]] = OrderedDict()

    def get(self, key: str) -> SearchAnswer | None:
        """Return the cached answer, unless it is too old."""
        found = self._values.get(key)
        if found is None:
            return None
        if time.monotonic() - found[0] > self._keep_s:
            del self._values[key]
            return None
        self._values.move_to_end(key)
        return found[1]

    def put(self, key: str, value: SearchAnswer) -> None:
        if not self._entries:
            return
        self._values[key] = (time.monotonic(), value)
        self._values.move_to_end(key)
        while len(self._values) > self._entries:
            self._values.popitem(last=False)


def make_key(provider: str, count: int, query: str) -> str:
    """Return a key that ignores case and spaces of the query."""
    return f"{provider}\0{count}\0{' '.join(query.lower().split())}"


class Searcher:
    """Searches with the providers that the user has configured."""

    def __init__(
        self, options: WebOptions, client: HttpClient, throttle: Throttle, environment: Mapping[str, str]
    ) -> None:
        self._options = options
        self._client = client
        self._throttle = throttle
        self._environment = environment
        self._cache = SearchCache(options.cache_entries, options.cache_s)

    async def search(self, query: str, count: int) -> SearchAnswer:
        """Return the results; a cached answer has the query as it was first written. Raises SearchFailed."""
        try:
            check_secrets(query, self._environment)
        except RequestFailed as error:
            raise SearchFailed("WEB_SEARCH_FAILED", str(error)) from None
        if self._options.provider != "auto":
            return await self._ask(self._options.provider, query, count)
        last = SearchFailed("WEB_SEARCH_FAILED", "no search provider is available; see web.providerPriority")
        for name in order_providers(self._options.priority):
            try:
                find_access(name, self._options.providers, self._environment)
            except SearchFailed:
                continue
            try:
                return await self._ask(name, query, count)
            except SearchFailed as error:
                last = error
        raise last

    async def _ask(self, name: str, query: str, count: int) -> SearchAnswer:
        try:
            return await self._reach(name, query, count)
        except SearchFailed as error:
            error.provider = name if name in PROVIDERS else ""
            raise

    async def _reach(self, name: str, query: str, count: int) -> SearchAnswer:
        access = find_access(name, self._options.providers, self._environment)
        key = make_key(name, count, query)
        kept = self._cache.get(key)
        if kept is not None:
            return kept
        try:
            async with self._throttle:
                hits = await self._request(name, access, query, count)
        except QueueFull as error:
            raise SearchFailed("WEB_SEARCH_FAILED", str(error)) from None
        found = SearchAnswer(query, tuple(hits[:count]), name)
        self._cache.put(key, found)
        return found

    async def _request(self, name: str, access: ProviderAccess, query: str, count: int) -> list[SearchHit]:
        provider, options = PROVIDERS[name], self._options
        bounds = RequestBounds(options.timeout_s, options.max_bytes, is_strict=True)
        try:
            page = await self._client.ask(provider.ask(access, query, count), bounds)
        except RequestFailed as error:
            code = _KINDS.get(error.kind, "WEB_SEARCH_FAILED")
            raise SearchFailed(code, f"{provider.label}: {error}") from None
        if page.status in _STATUSES:
            code, text = _STATUSES[page.status]
            text = "refuses the key" if code == "PROVIDER_AUTH_FAILED" and provider.needs_key else text
            wait = "" if page.wait_s is None else f"; try again in {page.wait_s} s"
            raise SearchFailed(code, f"{provider.label} {text} (HTTP {page.status}){wait}")
        if not 200 <= page.status < 300:
            raise SearchFailed("WEB_SEARCH_FAILED", f"{provider.label} returned HTTP {page.status}")
        try:
            return provider.read(page.body)
        except SearchFailed as error:
            raise SearchFailed(error.code, f"{provider.label}: {error}") from None

"""The search providers: build their requests, parse their responses, select which to use. Pure: sends nothing."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.tools.markdown.tags import drop_unseen
from retinue.tools.outbound.client import HttpRequest
from retinue.tools.outbound.target import MAX_URL_CHARS
from retinue.tools.web.options import KEYLESS, ProviderOptions

MAX_SNIPPET = 1000
MAX_TITLE = 300
MAX_HITS = 5
_HREF = late_pattern(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_TAG = late_pattern(r"<[^>]*>")
TIERS = (("tavily", "serper", "brave"), ("openserp", "searxng"), ("ddgs",))
"""Paid providers, self-hosted ones, and the one that is always available."""


class SearchFailed(Exception):
    """Raised if a provider cannot be used, or gives no usable response."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.provider = ""
        """The provider that was asked; empty if none."""


class SearchHit(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""
    source: str = ""

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"title": self.title, "url": self.url}
        data |= {"snippet": self.snippet} if self.snippet else {}
        return data | ({"source": self.source} if self.source else {})


class ProviderAccess(Struct, frozen=True):
    """URL and key of a provider."""

    url: str
    key: str = ""
    engine: str = ""


class SearchProvider(Struct, frozen=True):
    """The request and response format of one search service."""

    label: str
    needs_key: bool
    ask: Callable[[ProviderAccess, str, int], HttpRequest]
    """Builds the request for a query and a number of results."""
    read: Callable[[bytes], list[SearchHit]]
    """Parses the results. Raises SearchFailed."""


def read_rows(value: Any, *names: str) -> list[Mapping[str, Any]]:
    """Return the list of results under the first of these names, empty if there is none. Raises SearchFailed."""
    if not isinstance(value, dict):
        raise SearchFailed("WEB_SEARCH_FAILED", "the answer is not a JSON object")
    rows: Any = next((value[name] for name in names if value.get(name) is not None), [])
    if not isinstance(rows, list):
        raise SearchFailed("WEB_SEARCH_FAILED", "the answer has no list of results")
    return [row for row in rows if isinstance(row, dict)]


def read_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SearchFailed("WEB_SEARCH_FAILED", f"the answer is not valid JSON ({str(error)[:100]})") from None


def to_hits(
    rows: Iterable[Mapping[str, Any]], *, url: str, snippet: str, other: str = "", source: str = ""
) -> list[SearchHit]:
    """Convert rows with these field names to results; rows without a valid URL are skipped."""
    found: dict[str, SearchHit] = {}
    for row in rows:
        address = row.get(url) or row.get("url") or row.get("link")
        address = to_text(address, MAX_URL_CHARS + 1)
        if address.startswith(("http://", "https://")) and len(address) <= MAX_URL_CHARS:
            title = to_text(row.get("title"), MAX_TITLE) or address[:MAX_TITLE]
            engine = to_text(row.get(source), 40) if source else ""
            about = to_text(row.get(snippet) or row.get(other), MAX_SNIPPET)
            found.setdefault(address, SearchHit(title, address, about, engine))
    return list(found.values())


def to_text(value: Any, most: int) -> str:
    """Return a value as one line without invisible characters."""
    return " ".join(drop_unseen(value).split())[:most] if isinstance(value, str) else ""


def ask_brave(access: ProviderAccess, query: str, count: int) -> HttpRequest:
    return HttpRequest(access.url, {"x-subscription-token": access.key}, {"q": query, "count": str(count)})


def read_brave(body: bytes) -> list[SearchHit]:
    value = read_json(body)
    web = (value.get("web") or {}) if isinstance(value, dict) else value
    return to_hits(read_rows(web, "results"), url="url", snippet="description")


def ask_duckduckgo(access: ProviderAccess, query: str, count: int) -> HttpRequest:
    return HttpRequest(access.url, {"Accept": "text/html"}, {"q": query})


def read_duckduckgo(body: bytes) -> list[SearchHit]:
    """Parse the links of the results page."""
    found: dict[str, SearchHit] = {}
    for part in body.decode("utf-8", "replace").split("</a>")[:-1]:
        attributes, _, inside = part[part.rfind("<a ") + 3 :].partition(">")
        href = _HREF.search(attributes)
        url = _unwrap(unescape((href[1] or href[2] or "") if href else ""))
        title = to_text(unescape(_TAG.sub("", inside)), MAX_TITLE)
        if url and title and url not in found:
            found[url] = SearchHit(title, url, source="fallback")
        if len(found) >= MAX_HITS:
            break
    return list(found.values())


def _unwrap(url: str) -> str:
    """Return the target of a redirect link; empty for links of the page itself."""
    try:
        parts = urlsplit("https:" + url if url.startswith("//") else url)
        wrapped = parse_qs(parts.query).get("uddg", [""])[0]
        target = urlsplit(wrapped) if wrapped else parts
    except ValueError:
        return ""
    host = target.hostname or ""
    is_own = host == "duckduckgo.com" or host.endswith(".duckduckgo.com")
    return target.geturl() if target.scheme in ("http", "https") and host and not is_own else ""


def ask_openserp(access: ProviderAccess, query: str, count: int) -> HttpRequest:
    headers = {"authorization": f"Bearer {access.key}", "x-api-key": access.key}
    return HttpRequest(access.url, headers, {"q": query, "num": str(count)})


def read_openserp(body: bytes) -> list[SearchHit]:
    value = read_json(body)
    # A self-hosted server returns the list itself, with other field names.
    value = {"results": value} if isinstance(value, list) else value
    return to_hits(read_rows(value, "organic_results", "results"), url="url", snippet="snippet", other="description")


def ask_searxng(access: ProviderAccess, query: str, count: int) -> HttpRequest:
    """Ask for the JSON output, which the server's settings must enable."""
    is_root = urlsplit(access.url).path in ("", "/")
    url = access.url.rstrip("/") + "/search" if is_root else access.url
    fixed = {"format": "json", "pageno": "1", "language": "en", "categories": "general"}
    return HttpRequest(url, query={"q": query, **fixed, "engines": access.engine, "count": str(count)})


def read_searxng(body: bytes) -> list[SearchHit]:
    return to_hits(read_rows(read_json(body), "results"), url="url", snippet="content", source="engine")


def ask_serper(access: ProviderAccess, query: str, count: int) -> HttpRequest:
    body = json.dumps({"q": query, "num": count}).encode()
    return HttpRequest(access.url, {"x-api-key": access.key}, body=body)


def read_serper(body: bytes) -> list[SearchHit]:
    return to_hits(read_rows(read_json(body), "organic"), url="link", snippet="snippet")


def ask_tavily(access: ProviderAccess, query: str, count: int) -> HttpRequest:
    body = {"api_key": access.key, "query": query, "max_results": count}
    return HttpRequest(access.url, body=json.dumps(body).encode())


def read_tavily(body: bytes) -> list[SearchHit]:
    return to_hits(read_rows(read_json(body), "results"), url="url", snippet="content")


PROVIDERS: Mapping[str, SearchProvider] = {
    "tavily": SearchProvider("Tavily", True, ask_tavily, read_tavily),
    "serper": SearchProvider("Serper", True, ask_serper, read_serper),
    "brave": SearchProvider("Brave Search", True, ask_brave, read_brave),
    "openserp": SearchProvider("OpenSERP", True, ask_openserp, read_openserp),
    "searxng": SearchProvider("SearXNG", False, ask_searxng, read_searxng),
    "ddgs": SearchProvider("DuckDuckGo", False, ask_duckduckgo, read_duckduckgo),
}


def find_access(name: str, options: Mapping[str, ProviderOptions], environment: Mapping[str, str]) -> ProviderAccess:
    """Return URL and key of a provider. Raises SearchFailed that says what is missing."""
    provider = PROVIDERS.get(name)
    if provider is None:
        raise SearchFailed(
            "INVALID_INPUT", f"unknown search provider {quote(name)}; choose one of: {', '.join(PROVIDERS)}"
        )
    own = options.get(name, ProviderOptions())
    if name == "ddgs":
        return ProviderAccess(own.base_url or KEYLESS)
    if not own.enabled:
        raise SearchFailed("INVALID_INPUT", f"{provider.label} is not enabled: set web.{name}.enabled")
    if not _is_web(own.base_url):
        raise SearchFailed("INVALID_INPUT", f"web.{name}.baseUrl is {quote(own.base_url)}: expected an http(s) address")
    key = environment.get(own.key_name, "").strip() if own.key_name else ""
    if provider.needs_key and not key:
        raise SearchFailed("PROVIDER_AUTH_FAILED", f"{provider.label} needs a key in the variable {own.key_name}")
    return ProviderAccess(own.base_url, key, own.engine)


def order_providers(priority: tuple[str, ...]) -> list[str]:
    """Return the providers that `auto` may try, in order; only those in the priority list."""
    return [name for tier in TIERS for name in priority if name in tier]


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False

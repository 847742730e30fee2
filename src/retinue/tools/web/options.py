"""Options of the web tools: plain values. Must not know where they come from."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.tools.outbound.request import RequestBounds, RequestReach

if TYPE_CHECKING:
    from retinue.tools.outbound.request import HttpExchange

AGENT = "devkit-pi-web-tools/0.1"
KEYLESS = "https://lite.duckduckgo.com/lite/"
READER = "https://r.jina.ai/"


class ProviderOptions(Struct, frozen=True):
    enabled: bool = False
    base_url: str = ""
    key_name: str = ""
    """The environment variable with its key; empty if it needs none."""
    engine: str = ""


class ReaderOptions(Struct, frozen=True):
    """A service that renders pages which need a browser."""

    base_url: str = READER
    timeout_s: float = 8.0
    triggers: tuple[str, ...] = ("short-html", "js-heavy-html")


class WebOptions(Struct, frozen=True, kw_only=True):
    provider: str = "ddgs"
    priority: tuple[str, ...] = ("tavily", "serper", "brave", "openserp", "searxng", "ddgs")
    providers: Mapping[str, ProviderOptions] = {}
    timeout_s: float = 10.0
    max_bytes: int = 1_048_576
    max_chars: int = 30_000
    max_results: int = 5
    reader: ReaderOptions | None = None
    max_stored: int = 100
    max_stored_chars: int = 200_000
    cache_entries: int = 0
    """0: search results are not cached."""
    cache_s: float = 300.0
    max_concurrent: int = 3
    max_waiting: int = 10
    reach: RequestReach = RequestReach()

    @property
    def bounds(self) -> RequestBounds:
        return RequestBounds(self.timeout_s, self.max_bytes)


def _keep_nothing(record: dict[str, Any]) -> None:
    """For tools without a session."""


class WebPorts(Struct, frozen=True, kw_only=True):
    """What the tools use to reach the network and the session; tests replace it."""

    environment: Mapping[str, str] = {}
    """Contains the keys."""
    resolve: Callable[[str, int], Awaitable[list[str]]] | None = None
    """Replaces the system's name resolution."""
    locate: Callable[[str, int], tuple[str, int]] | None = None
    """Maps an address to the one to connect to, for tests."""
    trace: "Callable[[HttpExchange], None] | None" = None
    """Receives each request."""
    keep: Callable[[dict[str, Any]], None] = _keep_nothing
    """Writes a result to the session."""
    load: Callable[[], Iterable[Any]] = tuple
    """Reads the results in the session."""

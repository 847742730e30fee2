"""What the web tools are told by their owner: plain values. Must not know where they come from."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.tools.outbound.request import RequestBounds, RequestReach

if TYPE_CHECKING:
    from retinue.tools.outbound.trace import HttpExchange

AGENT = "devkit-pi-web-tools/0.1"
KEYLESS = "https://lite.duckduckgo.com/lite/"
READER = "https://r.jina.ai/"


class ProviderOptions(Struct, frozen=True):
    """One search provider."""

    enabled: bool = False
    base_url: str = ""
    key_name: str = ""
    """The environment variable with its key; empty where none is wanted."""
    engine: str = ""


class ReaderOptions(Struct, frozen=True):
    """A service that shows pages which need a browser."""

    base_url: str = READER
    timeout_s: float = 8.0
    triggers: tuple[str, ...] = ("short-html", "js-heavy-html")


class WebOptions(Struct, frozen=True, kw_only=True):
    """All of them."""

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
    """0: search results are not kept."""
    cache_s: float = 300.0
    max_concurrent: int = 3
    max_waiting: int = 10
    reach: RequestReach = RequestReach()

    @property
    def bounds(self) -> RequestBounds:
        """Of one request."""
        return RequestBounds(self.timeout_s, self.max_bytes)


def _keep_nothing(record: dict[str, Any]) -> None:
    """For tools that belong to no session."""


class WebPorts(Struct, frozen=True, kw_only=True):
    """What the tools reach out with; the defaults are the real world."""

    environment: Mapping[str, str] = {}
    """Where keys are."""
    resolve: Callable[[str, int], Awaitable[list[str]]] | None = None
    """Instead of the system's name servers."""
    locate: Callable[[str, int], tuple[str, int]] | None = None
    """Where an address really is, for tests."""
    trace: "Callable[[HttpExchange], None] | None" = None
    """Hears of each request."""
    keep: Callable[[dict[str, Any]], None] = _keep_nothing
    """Puts a stored result on record."""
    load: Callable[[], Iterable[Any]] = tuple
    """What is on record."""

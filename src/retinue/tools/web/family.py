"""Makes the web tools of one session: they share a client, a gate and a store."""

from retinue.core.tool import Tool
from retinue.tools.outbound.client import Client
from retinue.tools.web.content import GetSearchContentTool
from retinue.tools.web.fetch import FetchContentTool
from retinue.tools.web.fetcher import Fetcher
from retinue.tools.web.options import AGENT, WebOptions, WebPorts
from retinue.tools.web.search import WebSearchTool
from retinue.tools.web.searcher import Searcher
from retinue.tools.web.store import Store
from retinue.tools.web.throttle import Throttle


def build_web_tools(options: WebOptions, ports: WebPorts) -> dict[str, Tool]:
    """All three, by name."""
    client = Client(
        options.reach, agent=AGENT, environment=ports.environment, resolve=ports.resolve, locate=ports.locate
    )
    throttle = Throttle(options.max_concurrent, options.max_waiting)
    store = Store(options.max_stored, keep=ports.keep, load=ports.load)
    fetcher = Fetcher(options, client, throttle)
    searcher = Searcher(options, client, throttle, ports.environment)
    return {
        "web_search": WebSearchTool(searcher, fetcher, store, options),
        "fetch_content": FetchContentTool(fetcher, store, max_chars=options.max_chars),
        "get_search_content": GetSearchContentTool(store, max_chars=options.max_chars),
    }

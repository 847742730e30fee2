"""What the web tools of one session share: a client, a gate and a store. Made when the first of them is used."""

from functools import cached_property
from typing import TYPE_CHECKING

from retinue.tools.web.options import AGENT, WebOptions, WebPorts

if TYPE_CHECKING:  # an agent that has the tools and does not use them pays for none of it
    from retinue.tools.outbound.client import Client
    from retinue.tools.web.fetcher import Fetcher
    from retinue.tools.web.searcher import Searcher
    from retinue.tools.web.store import Store
    from retinue.tools.web.throttle import Throttle


class Web:
    """All of it."""

    def __init__(self, options: WebOptions, ports: WebPorts) -> None:
        self.options = options
        self._ports = ports

    @cached_property
    def _client(self) -> "Client":
        from retinue.tools.outbound.client import Client

        own = self._ports
        reach = self.options.reach
        return Client(
            reach,
            agent=AGENT,
            environment=own.environment,
            resolve=own.resolve,
            locate=own.locate,
            trace=own.trace,
        )

    @cached_property
    def _throttle(self) -> "Throttle":
        from retinue.tools.web.throttle import Throttle

        return Throttle(self.options.max_concurrent, self.options.max_waiting)

    @cached_property
    def store(self) -> "Store":
        from retinue.tools.web.store import Store

        return Store(self.options.max_stored, keep=self._ports.keep, load=self._ports.load)

    @cached_property
    def fetcher(self) -> "Fetcher":
        from retinue.tools.web.fetcher import Fetcher

        return Fetcher(self.options, self._client, self._throttle)

    @cached_property
    def searcher(self) -> "Searcher":
        from retinue.tools.web.searcher import Searcher

        return Searcher(self.options, self._client, self._throttle, self._ports.environment)

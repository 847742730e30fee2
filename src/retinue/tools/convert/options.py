"""What the convert tool is told by its owner: plain values. Must not know where they come from."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.tools.outbound.request import RequestBounds, RequestReach
from retinue.tools.process_tree import TreeProbe

if TYPE_CHECKING:
    from retinue.tools.outbound.trace import HttpExchange

AGENT = "devkit-pi-convert/1.0"
COMMAND = "markitdown"
"""The converter that is used when it is there, and not missed for formats that are read without it."""
MEMORY_BYTES = 1 << 30
CPU_S = 20


class ConvertOptions(Struct, frozen=True, kw_only=True):
    """All of them."""

    command: str = COMMAND
    timeout_s: float = 30.0
    max_bytes: int = 10_485_760
    max_chars: int = 50_000
    reach: RequestReach = RequestReach(switch="convertContent.allowPrivateNetwork")

    @property
    def bounds(self) -> RequestBounds:
        """Of one download."""
        return RequestBounds(self.timeout_s, self.max_bytes, is_strict=True)


class ConvertPorts(Struct, frozen=True, kw_only=True):
    """What the tool reaches out with; the defaults are the real world."""

    environment: Mapping[str, str] = {}
    resolve: Callable[[str, int], Awaitable[list[str]]] | None = None
    """Instead of the system's name servers."""
    locate: Callable[[str, int], tuple[str, int]] | None = None
    """Where an address really is, for tests."""
    trace: "Callable[[HttpExchange], None] | None" = None
    """Hears of each request."""
    trees: TreeProbe = field(default_factory=TreeProbe)

"""Options of the convert tool: plain values. Must not know where they come from."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.tools.outbound.request import RequestReach
from retinue.tools.process_tree import TreeProbe

if TYPE_CHECKING:
    from retinue.tools.outbound.request import HttpExchange

AGENT = "devkit-pi-convert/1.0"
COMMAND = "markitdown"
"""The default converter; it is optional, because common formats are read without it."""
MEMORY_BYTES = 1 << 30
CPU_S = 20


class ConvertOptions(Struct, frozen=True, kw_only=True):
    command: str = COMMAND
    timeout_s: float = 30.0
    max_bytes: int = 10_485_760
    max_chars: int = 50_000
    reach: RequestReach = RequestReach(switch="convertContent.allowPrivateNetwork")


class ConvertPorts(Struct, frozen=True, kw_only=True):
    """What the tool uses to reach the network; tests replace it."""

    environment: Mapping[str, str] = {}
    resolve: Callable[[str, int], Awaitable[list[str]]] | None = None
    """Replaces the system's name resolution."""
    locate: Callable[[str, int], tuple[str, int]] | None = None
    """Maps an address to the one to connect to, for tests."""
    trace: "Callable[[HttpExchange], None] | None" = None
    """Receives each request."""
    trees: TreeProbe = field(default_factory=TreeProbe)

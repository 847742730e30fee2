"""What one run gets beside what all runs of a crew have, such as what its extensions bring along."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from retinue.core.definition import Definition
from retinue.core.tool import Tool
from retinue.engine.bus import Listener
from retinue.engine.calls import CallHook
from retinue.engine.request import RunRequest
from retinue.engine.setup import Feature
from retinue.tools.selectors import Offer


class Extras(Struct, frozen=True):
    """What one run gets beside what all have."""

    tools: Mapping[str, Tool] = {}
    offers: Mapping[str, Offer] = {}
    """Where its tools come from."""
    hooks: Sequence[CallHook] = ()
    features: Sequence[Feature] = ()
    """New ones, entered after all others."""
    found: frozenset[str] | None = None
    """All extensions that exist, in lower case; None when that is not known."""
    failed: frozenset[str] = frozenset()
    """Those that it wanted and that could not be loaded."""
    listeners: Sequence[tuple[Listener, bool]] = ()
    """Who hears what happens in it, and whether they want replies as they arrive."""
    release: Callable[[], None] = lambda: None
    """Called once when the run is over, however it ends, also when it never began."""
    points: Sequence[Any] = ()
    """Hooks that stand at points of a run; what a hook is, `features.hooks` knows."""


NOTHING = Extras()


async def add_nothing(definition: Definition, request: RunRequest) -> Extras:
    """For a crew without extensions."""
    return NOTHING

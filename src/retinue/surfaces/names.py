"""Which delegation tools each surface has, by name. Imports nothing: asking for none of them must cost nothing."""

from collections.abc import Iterable

SURFACE_TOOLS: dict[str, tuple[str, ...]] = {
    "fleet": (
        "Agent",
        "get_subagent_result",
        "steer_subagent",
        "list_subagents",
        "clear_subagents",
        "list_models",
    ),
    "subagent": ("subagent",),
    "dispatch": ("dispatch_agent",),
}
"""In the order they are shown; who makes them is in `app/delegation_tools.py`."""
DISPATCH = "dispatch_agent"
FINALIZE = "subagent_finalize"
"""How an agent that has to finalise gives its answer; only children have it."""


def list_tools(surfaces: Iterable[str]) -> list[str]:
    """The tools of these surfaces."""
    chosen = set(surfaces)
    return [name for surface, names in SURFACE_TOOLS.items() if surface in chosen for name in names]


def find_surfaces(tools: Iterable[str]) -> list[str]:
    """The surfaces that any of these tools belong to."""
    named = set(tools)
    return [surface for surface, names in SURFACE_TOOLS.items() if named.intersection(names)]

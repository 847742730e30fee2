"""Decides which tools a main agent gets: names in, names out. Creates no tool."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from retinue.core.errors import UsageError, quote
from retinue.core.tool_table import BUILTIN_TOOLS, FINALIZE, SUBMIT, SURFACES, list_surface_tools
from retinue.settings.request import Request
from retinue.settings.subagents import SubagentsConfig


class AvailableTools(Struct, frozen=True):
    """The names of the tools that one main agent can have."""

    usual: Sequence[str]
    """Built-in tools that it gets by default."""
    beside: Sequence[str]
    """Tools for the web, documents and language servers, and tools from the calling program and extensions."""
    on_request: Sequence[str]
    """Tools that it gets only if they are named."""
    surfaces: Sequence[str]
    is_served: Callable[[str], bool]
    """Whether a name may be a tool of an MCP server that has not been started yet."""


def list_surfaces(request: Request, crew: SubagentsConfig, *, is_child: bool, has_dispatch: bool) -> list[str]:
    """Return the surfaces that a main agent may have."""
    is_bare = is_child and not request.is_hosted
    allowed = [name for name in SURFACES if crew.allows_surface(name, is_child=is_bare)]
    return [name for name in allowed if name != "dispatch" or has_dispatch]


def choose_surfaces(request: Request, crew: SubagentsConfig, allowed: Sequence[str], *, is_child: bool) -> list[str]:
    """Return the surfaces that a main agent gets; inside another program's agent there is none by default."""
    usual = () if is_child else crew.surfaces
    wanted = usual if request.surfaces is None else request.surfaces
    return [name for name in allowed if name in wanted or "*" in wanted]


def choose_main_tools(
    request: Request, available: AvailableTools, surfaces: Sequence[str], *, is_child: bool
) -> tuple[list[str], list[str]]:
    """Return the names of its tools, and those that a calling program asked for but cannot have. Raises UsageError."""
    usual = [*available.usual, *available.beside, *list_surface_tools(surfaces)]
    named = usual if request.tools is None else request.tools
    wanted = [name for name in named if name not in request.exclude_tools]
    known = [*BUILTIN_TOOLS, *available.on_request, *available.beside, *list_surface_tools(available.surfaces)]
    if is_child:
        known += [FINALIZE, SUBMIT]
    # Tools of MCP servers are added when the server has answered.
    wanted = [name for name in wanted if not available.is_served(name)]
    missing = [name for name in wanted if name not in known] if request.is_child else []
    left = [name for name in wanted if name not in missing]
    for name in [*left, *request.exclude_tools]:
        if name not in known and not available.is_served(name):
            raise UsageError(f"there is no tool {quote(name)}; available: {', '.join(known)}")
    return list(dict.fromkeys(left)), missing

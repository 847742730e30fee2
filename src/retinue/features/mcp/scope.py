"""Which servers a run may need, decided before any of them is started. Pure.

What of their tools it then gets is `tools.policy`'s business; here it only matters that nobody waits for a server, or
starts one, of which the run could use nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from retinue.core.definition import Definition
from retinue.core.tool_table import SEARCH
from retinue.features.mcp.names import find_server
from retinue.features.mcp.server import McpServer
from retinue.tools.selectors import MCP, SELECTOR, choose_selectors, list_extensions, to_extension_name


def choose_servers(
    definition: Definition,
    servers: Mapping[str, McpServer],
    *,
    isolated: bool = False,
    exact: bool = False,
    always: Collection[str] = (),
) -> list[str]:
    """The servers a run of a definition may need; `exact` when it gets only what its file lists."""
    if isolated or definition.isolated or definition.extensions is False:
        return []
    if MCP in {to_extension_name(name) for name in definition.exclude_extensions}:
        return []
    listed = list_extensions(definition.extensions)
    is_listed = listed is None or MCP in listed or MCP in {name.lower() for name in always}
    if not is_listed:
        return []
    if definition.mcp_servers:
        chosen = [name for name in servers if name in definition.mcp_servers]
    else:
        searches = not exact and SEARCH in (definition.tools.names or ())
        chosen = _choose_named(definition, servers, exact=exact or definition.dialect != "pi", searches=searches)
    if definition.readonly:
        # Only the user's word lets a tool into a read-only agent.
        return [name for name in chosen if servers[name].read_only_tools]
    return chosen


def _choose_named(
    definition: Definition, servers: Mapping[str, McpServer], *, exact: bool, searches: bool
) -> list[str]:
    words = choose_selectors(definition)
    if definition.tools.inherits or (not exact and not words):
        return list(servers)
    waiting = [name for name, server in servers.items() if server.deferred_tools] if searches else []
    return [name for name in servers if name in (*find_named(words, servers), *waiting)]


def find_named(words: Iterable[str], servers: Mapping[str, McpServer]) -> list[str]:
    """The servers whose tools some words of a file or a command line may mean."""
    found: set[str | None] = set()
    for word in words:
        named = word
        if word.startswith(SELECTOR):
            extension, _, named = word.removeprefix(SELECTOR).partition("/")
            if extension.strip().lower() != MCP:
                continue
            if ":" not in named and find_server(named, servers) is None:
                return list(servers)  # a tool by its own name may be any server's
        found.update(server for server in servers if named.startswith(f"{server}:"))
        found.add(find_server(named, servers))
    return [name for name in servers if name in found]

"""All tools of retinue, one row each, and the names that follow from the rows. Data only: it makes no tool.

Tools of extensions, MCP servers and programs are not here.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from retinue.core.tool import Effect

ToolAudience: TypeAlias = Literal["everyone", "listed", "settings", "callers", "deferred", "internal"]
"""Who may have a tool. `everyone`: an agent whose file lists no tools has it. `listed`: an agent whose file lists it,
whatever its parent has. `settings`: an agent, when the settings switch its family on. `callers`: a run that may start
agents; its family is a surface. `deferred`: a run with tools that it has to look for. `internal`: a run that needs it;
no list gives it and no child inherits it."""


class ToolRow(NamedTuple):
    """One tool."""

    name: str
    family: str
    effect: Effect
    audience: ToolAudience
    file: str
    """Where it is, without suffix: its class in `.py`, what the model is told of it in `.md` beside that."""
    class_name: str


TOOLS = (
    ToolRow("read", "files", Effect.READ, "everyone", "tools/files/read", "ReadTool"),
    ToolRow("bash", "shell", Effect.EXECUTE, "everyone", "tools/shell/bash", "BashTool"),
    ToolRow("edit", "files", Effect.WRITE, "everyone", "tools/files/edit", "EditTool"),
    ToolRow("write", "files", Effect.WRITE, "everyone", "tools/files/write", "WriteTool"),
    ToolRow("grep", "files", Effect.READ, "everyone", "tools/files/grep", "GrepTool"),
    ToolRow("find", "files", Effect.READ, "everyone", "tools/files/find", "FindTool"),
    ToolRow("ls", "files", Effect.READ, "everyone", "tools/files/ls", "LsTool"),
    ToolRow("todo_write", "todo", Effect.READ, "listed", "tools/todo", "TodoTool"),
    ToolRow("web_search", "web", Effect.NETWORK, "settings", "tools/web/search", "WebSearchTool"),
    ToolRow("fetch_content", "web", Effect.NETWORK, "settings", "tools/web/fetch", "FetchContentTool"),
    ToolRow("get_search_content", "web", Effect.NETWORK, "settings", "tools/web/content", "GetSearchContentTool"),
    ToolRow("convert_content", "convert", Effect.NETWORK, "settings", "tools/convert/convert", "ConvertContentTool"),
    ToolRow("lsp", "lsp", Effect.READ, "settings", "tools/lsp/tool", "LspTool"),
    ToolRow("Agent", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/agent", "AgentTool"),
    ToolRow("get_subagent_result", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/result", "ResultTool"),
    ToolRow("steer_subagent", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/steer", "SteerTool"),
    ToolRow("list_subagents", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/list_subagents", "ListTool"),
    ToolRow("clear_subagents", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/clear_subagents", "ClearTool"),
    ToolRow("list_models", "fleet", Effect.READ, "callers", "surfaces/fleet/model_list", "ModelsTool"),
    ToolRow("subagent", "subagent", Effect.DELEGATE, "callers", "surfaces/subagent/tool", "SubagentTool"),
    ToolRow("dispatch_agent", "dispatch", Effect.DELEGATE, "callers", "surfaces/dispatch/tool", "DispatchTool"),
    ToolRow("tool_search", "search", Effect.READ, "deferred", "features/deferred", "SearchTool"),
    ToolRow("subagent_finalize", "finalize", Effect.READ, "internal", "features/finalise", "FinalizeTool"),
)
"""In the order they are shown."""


def list_rows(*, family: str = "", audience: ToolAudience | None = None) -> list[ToolRow]:
    """The rows of a family, or for an audience."""
    return [row for row in TOOLS if (not family or row.family == family) and audience in (None, row.audience)]


def list_names(*, family: str = "", audience: ToolAudience | None = None) -> tuple[str, ...]:
    """The names of the tools of a family, or for an audience."""
    return tuple(row.name for row in list_rows(family=family, audience=audience))


KNOWN_TOOLS = frozenset(list_names())
"""All names that mean a tool of retinue somewhere."""
EFFECTS = {row.name: row.effect for row in TOOLS}
BUILTIN_TOOLS = list_names(audience="everyone")
SURFACES = tuple(dict.fromkeys(row.family for row in list_rows(audience="callers")))
SURFACE_TOOLS = {surface: list_names(family=surface) for surface in SURFACES}
"""The delegation tools of each surface; the first one starts agents."""
DISPATCH = "dispatch_agent"
SEARCH = "tool_search"
"""In a list it asks for all deferred tools; it is given with them, and not missed without."""
FINALIZE = "subagent_finalize"
"""How an agent that has to finalise gives its answer; only children have it."""


def list_surface_tools(surfaces: Iterable[str]) -> list[str]:
    """The tools of these surfaces."""
    chosen = set(surfaces)
    return [name for surface, names in SURFACE_TOOLS.items() if surface in chosen for name in names]


def find_surfaces(tools: Iterable[str]) -> list[str]:
    """The surfaces that any of these tools belong to."""
    named = set(tools)
    return [surface for surface, names in SURFACE_TOOLS.items() if named.intersection(names)]

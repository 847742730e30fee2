"""The table of all tools of retinue, and the names derived from it. Data only: it creates no tool.

Tools of extensions, MCP servers and programs are not here.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from retinue.core.tool import Effect

ToolAudience: TypeAlias = Literal["everyone", "listed", "settings", "callers", "deferred", "internal"]
"""Who gets a tool. `everyone`: an agent whose file lists no tools. `listed`: an agent whose file lists it, whatever its
parent has. `settings`: an agent, if the settings enable its family. `callers`: a run that may start agents; its family
is a surface. `deferred`: a run with tools that it must search for. `internal`: a run that needs it; no list gives it
and no child inherits it."""


class ToolRow(NamedTuple):
    name: str
    family: str
    effect: Effect
    audience: ToolAudience
    file: str
    """Path without suffix: the class is in `.py`, the description for the model in `.md`."""
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
    ToolRow("ask_parent", "ask", Effect.READ, "listed", "tools/ask_parent", "AskParentTool"),
    ToolRow("web_search", "web", Effect.NETWORK, "settings", "tools/web/search", "WebSearchTool"),
    ToolRow("fetch_content", "web", Effect.NETWORK, "settings", "tools/web/fetch", "FetchContentTool"),
    ToolRow("get_search_content", "web", Effect.NETWORK, "settings", "tools/web/content", "GetSearchContentTool"),
    ToolRow("convert_content", "convert", Effect.NETWORK, "settings", "tools/convert/convert", "ConvertContentTool"),
    ToolRow("lsp", "lsp", Effect.READ, "settings", "tools/lsp/tool", "LspTool"),
    ToolRow("Agent", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/agent", "AgentTool"),
    ToolRow("get_subagent_result", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/result", "ResultTool"),
    ToolRow("steer_subagent", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/steer", "SteerTool"),
    ToolRow("answer_subagent", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/answer", "AnswerTool"),
    ToolRow("list_subagents", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/list_subagents", "ListTool"),
    ToolRow("clear_subagents", "fleet", Effect.DELEGATE, "callers", "surfaces/fleet/clear_subagents", "ClearTool"),
    ToolRow("list_models", "fleet", Effect.READ, "callers", "surfaces/fleet/model_list", "ModelsTool"),
    ToolRow("subagent", "subagent", Effect.DELEGATE, "callers", "surfaces/subagent/tool", "SubagentTool"),
    ToolRow("dispatch_agent", "dispatch", Effect.DELEGATE, "callers", "surfaces/dispatch/tool", "DispatchTool"),
    ToolRow("tool_search", "search", Effect.READ, "deferred", "features/deferred", "SearchTool"),
    ToolRow("land_branches", "landing", Effect.EXECUTE, "internal", "features/merges/tool", "LandTool"),
    ToolRow("subagent_finalize", "finalize", Effect.READ, "internal", "features/finalise", "FinalizeTool"),
    ToolRow("submit_result", "finalize", Effect.READ, "internal", "features/finalise", "SubmitTool"),
)
"""In display order."""


def list_rows(*, family: str = "", audience: ToolAudience | None = None) -> list[ToolRow]:
    return [row for row in TOOLS if (not family or row.family == family) and audience in (None, row.audience)]


def list_names(*, family: str = "", audience: ToolAudience | None = None) -> tuple[str, ...]:
    return tuple(row.name for row in list_rows(family=family, audience=audience))


KNOWN_TOOLS = frozenset(list_names())
"""All names of tools of retinue."""
EFFECTS = {row.name: row.effect for row in TOOLS}
BUILTIN_TOOLS = list_names(audience="everyone")
SURFACES = tuple(dict.fromkeys(row.family for row in list_rows(audience="callers")))
SURFACE_TOOLS = {surface: list_names(family=surface) for surface in SURFACES}
"""The delegation tools of each surface; the first starts agents."""
DISPATCH = "dispatch_agent"
ASK = "ask_parent"
SEARCH = "tool_search"
"""In a list it asks for all deferred tools. It is added with them; if there are none, its absence is not an error."""
LAND = "land_branches"
FINALIZE = "subagent_finalize"
"""The tool with which an agent gives its final answer; only children have it."""
SUBMIT = "submit_result"
"""The tool with which an agent delivers a result that must match a schema."""


def list_surface_tools(surfaces: Iterable[str]) -> list[str]:
    chosen = set(surfaces)
    return [name for surface, names in SURFACE_TOOLS.items() if surface in chosen for name in names]


def find_surfaces(tools: Iterable[str]) -> list[str]:
    named = set(tools)
    return [surface for surface, names in SURFACE_TOOLS.items() if named.intersection(names)]


LSP_ACTIONS = (
    *("definition", "references", "hover", "signature", "symbols", "diagnostics", "workspace-diagnostics", "servers"),
)
"""Language server actions that agents may use by default: all that change nothing."""

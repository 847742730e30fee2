"""The `copilot` dialect: custom agents of GitHub Copilot and VS Code, in `.github/agents`. Pure."""

from retinue.core.definition import Source
from retinue.definitions.foreign import (
    DELEGATION,
    WEB,
    AgentDraft,
    Parsed,
    check_servers,
    parse_markdown,
    split_words,
)
from retinue.definitions.foreign_fields import ForeignTables
from retinue.definitions.frontmatter import Scalar

FIELDS = {
    "name": "display_name",
    "description": "description",
    "tools": "tools",
    "model": "model",
    "agents": "agents",
    "infer": "infer",
    "disable-model-invocation": "manual",
    "mcp-servers": "mcp_servers",
}
IGNORED = {
    "target": "the agent is used wherever retinue runs",
    "user-invocable": "every agent can be started by name",
    "metadata": "for other programs",
    "argument-hint": "for menus of VS Code",
    "handoffs": "buttons of VS Code",
}
_READING, _SEARCH, _EDIT, _SHELL = ("read",), ("grep", "find", "ls"), ("edit", "write"), ("bash",)
TOOLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("read", "notebookread", "view", "read/readfile"), _READING),
    **dict.fromkeys(("edit", "multiedit", "write", "notebookedit", "editfiles", "edit/editfiles"), _EDIT),
    **dict.fromkeys(("search", "codebase", "search/codebase"), _SEARCH),
    **dict.fromkeys(("grep", "search/textsearch", "textsearch"), ("grep",)),
    **dict.fromkeys(("glob", "search/filesearch", "filesearch"), ("find",)),
    **dict.fromkeys(("search/listdirectory", "listdirectory"), ("ls",)),
    **dict.fromkeys(("edit/createfile", "edit/createdirectory", "new"), ("write",)),
    **dict.fromkeys(("execute", "shell", "bash", "runcommands", "runinterminal", "execute/runinterminal"), _SHELL),
    **dict.fromkeys(("web",), ("web_search", "fetch_content")),
    **dict.fromkeys(("webfetch", "fetch", "web/fetch"), ("fetch_content",)),
    **dict.fromkeys(("websearch", "web/search"), ("web_search",)),
    **dict.fromkeys(("todo", "todos", "todowrite"), ("todo_write",)),
    **dict.fromkeys(("agent", "custom-agent", "task", "runsubagent", "agent/runsubagent"), ("Agent",)),
    **dict.fromkeys(("powershell", "problems", "usages", "changes", "think", "githubrepo", "extensions"), ()),
    **dict.fromkeys(("vscodeapi", "opensimplebrowser", "runtests", "runtasks", "terminallastcommand"), ()),
}
TABLES = ForeignTables("copilot", FIELDS, IGNORED, TOOLS, {"web": ("web_search", *WEB), "agent": DELEGATION})


def parse(text: str, path: str, source: Source) -> Parsed:
    """Parse an agent profile; returns the definition, if it is usable, and all problems."""
    return parse_markdown(text, path, source, TABLES, _read_more, has_stem=True)


def _read_more(draft: AgentDraft) -> None:
    fields = draft.fields
    if fields.read_flag("manual"):
        fields.block("manual", "only a person may start it in Copilot, and here the model could")
    value = fields.get("infer")
    if value is not None and not (isinstance(value, Scalar) and value.text in ("true", "agent", "all")):
        fields.block("infer", "only a person may start it in Copilot, and here the model could")
    if fields.has("mcp_servers"):
        fields.drop("mcp_servers", "servers are configured in mcp.json; none is started from an agent file")
        check_servers(draft, "mcp_servers")
    if fields.has("agents"):
        words = split_words(fields.get("agents"))
        if words is None:
            fields.block_value("agents", "a list of agents")
        elif "Agent" not in (draft.names or ()) or "*" in words:
            fields.approximate("agents", "the agent starts others only if its tools list `agent`")
        elif words:
            draft.values["allowed_subagents"] = tuple(words)
        else:
            draft.deny(*DELEGATION)

"""The `claude` dialect: subagents of Claude Code, in `.claude/agents`, and of its plugins. Pure."""

from retinue.core.definition import FieldStatus, Source
from retinue.definitions.foreign import DELEGATION, WEB, AgentDraft, Parsed, check_servers, parse_markdown, read_tables
from retinue.definitions.foreign_fields import ForeignTables
from retinue.definitions.frontmatter import YamlTable

FIELDS = {
    "name": "name",
    "description": "description",
    "tools": "tools",
    "disallowedTools": "disallowed_tools",
    "model": "model",
    "permissionMode": "permission_mode",
    "maxTurns": "max_turns",
    "skills": "skills",
    "mcpServers": "mcp_servers",
    "hooks": "hooks",
    "memory": "memory",
    "effort": "thinking",
    "isolation": "isolation",
    "color": "color",
}
IGNORED = {
    "background": "the caller decides whether it waits for the agent",
    "initialPrompt": "it is for Claude Code's main session",
    "disable-model-invocation": "it is a field of skills",
    "version": "",
}
TOOLS: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "write": ("write",),
    "edit": ("edit",),
    "multiedit": ("edit",),
    "bash": ("bash",),
    "grep": ("grep",),
    "glob": ("find",),
    "ls": ("ls",),
    "webfetch": ("fetch_content",),
    "websearch": ("web_search",),
    "todowrite": ("todo_write",),
    "taskcreate": ("todo_write",),
    "taskupdate": ("todo_write",),
    "agent": ("Agent",),
    "task": ("Agent",),
    "lsp": ("lsp",),
    **dict.fromkeys(
        (
            *("skill", "notebookedit", "notebookread", "todoread", "tasklist", "taskget", "taskoutput", "taskstop"),
            *("bashoutput", "killshell", "killbash", "monitor", "powershell", "askuserquestion", "exitplanmode"),
            *("enterplanmode", "enterworktree", "exitworktree", "croncreate", "crondelete", "cronlist", "sendmessage"),
            *("toolsearch", "listmcpresourcestool", "readmcpresourcetool", "slashcommand", "artifact"),
        ),
        (),
    ),
}
DENIED = {
    "agent": DELEGATION,
    "task": DELEGATION,
    "webfetch": WEB,
    # Here these tools edit notebooks, too.
    "notebookedit": ("edit", "write"),
    "askuserquestion": ("ask_parent",),
    "skill": (),
}
MODES = ("default", "manual", "acceptEdits", "auto", "dontAsk", "plan", "bypassPermissions")
HARMLESS_HOOKS = frozenset((
    *("PostToolUse", "PostToolUseFailure", "Stop", "SubagentStart", "SubagentStop", "SessionStart", "SessionEnd"),
    *("Notification", "PreCompact", "PostCompact", "Setup", "pre", "post"),
))  # fmt: skip
"""Events whose hooks cannot refuse a tool call; `pre` and `post` are those of another program."""
TABLES = ForeignTables("claude", FIELDS, IGNORED, TOOLS, DENIED, models={"default": "", "best": "", "opusplan": "opus"})


def parse(text: str, path: str, source: Source) -> Parsed:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    return parse_markdown(text, path, source, TABLES, _read_more)


def _read_more(draft: AgentDraft) -> None:
    fields = draft.fields
    mode = fields.read_mode("permission_mode", MODES)
    if mode:
        fields.note(fields.name("permission_mode"), *apply_mode(draft, mode))
    if fields.has("hooks"):
        _read_hooks(draft)
    if fields.has("mcp_servers"):
        _read_servers(draft)


def apply_mode(draft: AgentDraft, mode: str) -> tuple[FieldStatus, str]:
    """Restrict the agent as its permission mode does; returns the status and how."""
    if mode == "plan":
        draft.readonly = True
        return "kept", ""
    if mode == "dontAsk":
        draft.readonly = True
        draft.deny("web_search", *WEB)
        return "approximated", "read-only and without the web: the rest would need an approval in Claude Code"
    if mode == "bypassPermissions":
        return "ignored", "an agent file cannot add rights"
    return "approximated", "the setting `approvals` decides which tool calls need your approval"


def _read_hooks(draft: AgentDraft) -> None:
    value = draft.fields.get("hooks")
    events = set(value.values) if isinstance(value, YamlTable) else {"an unknown form"}
    if guards := sorted(events - HARMLESS_HOOKS):
        draft.fields.block("hooks", f"{', '.join(guards)} may refuse calls, and hooks of agent files are not run")
    else:
        draft.fields.drop("hooks", "hooks of agent files are not run; put them into a hooks file")


def _read_servers(draft: AgentDraft) -> None:
    fields = draft.fields
    names = read_tables(fields.get("mcp_servers"))
    if names is None:
        return fields.drop("mcp_servers", "not a list of servers")
    if draft.names is None:
        draft.servers += names
        fields.approximate("mcp_servers", "servers of these names in mcp.json; none is started from an agent file")
    else:
        fields.approximate("mcp_servers", "the list of tools decides; servers are configured in mcp.json")
    check_servers(draft, "mcp_servers")

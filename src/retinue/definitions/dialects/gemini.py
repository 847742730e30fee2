"""The `gemini` dialect: subagents of Gemini CLI, in `.gemini/agents`. Pure."""

from retinue.core.definition import Source
from retinue.definitions.foreign import AgentDraft, Parsed, check_servers, parse_markdown, split_words
from retinue.definitions.foreign_fields import ForeignTables

FIELDS = {
    "name": "name",
    "description": "description",
    "display_name": "display_name",
    "kind": "kind",
    "tools": "tools",
    "model": "model",
    "max_turns": "max_turns",
    "timeout_mins": "timeout_mins",
    "mcpServers": "mcp_servers",
    "mcp_servers": "mcp_servers",
}
IGNORED = {
    "temperature": "models choose their own",
    "agent_card_url": "for remote agents",
    "agent_card_json": "for remote agents",
    "auth": "for remote agents",
}
TOOLS: dict[str, tuple[str, ...]] = {
    "read_file": ("read",),
    "read_many_files": ("read",),
    "write_file": ("write",),
    "replace": ("edit",),
    "run_shell_command": ("bash",),
    "list_directory": ("ls",),
    "glob": ("find",),
    "grep_search": ("grep",),
    "search_file_content": ("grep",),
    "web_fetch": ("fetch_content",),
    "google_web_search": ("web_search",),
    "write_todos": ("todo_write",),
    **dict.fromkeys(("save_memory", "ask_user", "activate_skill", "get_internal_docs", "codebase_investigator"), ()),
}
TABLES = ForeignTables("gemini", FIELDS, IGNORED, TOOLS, models={"auto": "", "pro": "pro", "flash": "flash"})


def parse(text: str, path: str, source: Source) -> Parsed:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    return parse_markdown(text, path, source, TABLES, _read_more, is_served=_is_served)


def _read_more(draft: AgentDraft) -> None:
    fields = draft.fields
    if fields.read_mode("kind", ("local", "remote")) == "remote":
        fields.block("kind", "a remote agent cannot be run here")
    if fields.has("timeout_mins"):
        minutes = fields.read_amount("timeout_mins", "a number of minutes above 0")
        draft.values["max_seconds"] = None if minutes is None else minutes * 60
    for word in filter(_is_served, split_words(fields.get("tools")) or ()):
        if word == "mcp_*":
            draft.selectors.append("ext:mcp")
        else:
            draft.servers.append(word[4:-2])
    if fields.has("mcp_servers"):
        fields.drop("mcp_servers", "servers are configured in mcp.json; none is started from an agent file")
        check_servers(draft, "mcp_servers")


def _is_served(word: str) -> bool:
    """Whether a word gives all tools of a server, or of all servers."""
    return word == "mcp_*" or (word.startswith("mcp_") and word.endswith("_*"))

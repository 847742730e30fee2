"""The `cursor` dialect: subagents of Cursor, in `.cursor/agents`. Pure."""

from collections.abc import Collection

from retinue.core.definition import Source
from retinue.core.tool_table import KNOWN_TOOLS
from retinue.definitions.dialects import claude
from retinue.definitions.foreign import Parsed, build_agent
from retinue.definitions.foreign_fields import ForeignTables, open_foreign

FIELDS = {
    "name": "name",
    "description": "description",
    "model": "model",
    "readonly": "readonly",
    # Not Cursor's fields, but read as Claude Code's, since they restrict the agent.
    "tools": "tools",
    "disallowedTools": "disallowed_tools",
    "color": "color",
}
IGNORED = {"is_background": "the caller decides whether it waits for the agent"}
TABLES = ForeignTables("cursor", FIELDS, IGNORED, claude.TOOLS, claude.DENIED, {"fast": "", "auto": "", "default": ""})


def parse(text: str, path: str, source: Source, *, known_tools: Collection[str] = KNOWN_TOOLS) -> Parsed:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    fields, problems = open_foreign(text, path, TABLES)
    return (None, problems) if fields is None else build_agent(fields, source, lambda draft: None)

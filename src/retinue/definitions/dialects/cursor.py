"""The `cursor` dialect: subagents of Cursor, in `.cursor/agents`. Pure."""

from retinue.core.definition import Source
from retinue.definitions.dialects import claude
from retinue.definitions.foreign import Parsed, parse_markdown
from retinue.definitions.foreign_fields import ForeignTables

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


def parse(text: str, path: str, source: Source) -> Parsed:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    return parse_markdown(text, path, source, TABLES)

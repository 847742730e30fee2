"""What tools are called in the agent files of Claude Code, for messages and for what such a file forbids.

A name from there grants nothing here: tool names are exact, and rights are not guessed. Must not know who is told.
"""

from collections.abc import Collection

from retinue.core.diagnostics import suggest
from retinue.core.errors import quote

ELSEWHERE = {
    "Glob": "find",
    "MultiEdit": "edit",
    "Task": "Agent",
    "TodoWrite": "todo_write",
    "WebFetch": "fetch_content",
    "WebSearch": "web_search",
}
"""Claude Code's names that differ by more than a capital, and the tools here that do the same."""


def suggest_tool(name: str, known: Collection[str]) -> str:
    """` (…)` with the name of the tool that was meant, or nothing."""
    if (own := ELSEWHERE.get(name)) is not None:
        return f" (that is Claude Code's name; here it is {quote(own)})"
    return suggest(name, known)

"""What tools are called in the agent files of other programs.

A name of Claude Code grants nothing here: tool names are exact, and rights are not guessed. Must not know who is told.
"""

from collections.abc import Collection, Iterable

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
CODINGCODE = {
    "read_file": "read",
    "write_file": "write",
    "edit_file": "edit",
    "execute_command": "bash",
    "search_code": "grep",
    "search_files": "find",
    "fetch_url": "fetch_content",
    "web_search": "web_search",
    "todo_write": "todo_write",
}
"""CodingCode's name of a tool → ours; the model of such an agent sees the former."""


def list_aliases(tools: Iterable[str]) -> tuple[str, ...]:
    """These tools by all names under which a model may know them."""
    own = tuple(tools)
    return tuple(dict.fromkeys((*own, *(alias for alias, tool in CODINGCODE.items() if tool in own))))


def suggest_tool(name: str, known: Collection[str]) -> str:
    """` (…)` with the name of the tool that was meant, or nothing."""
    if (own := ELSEWHERE.get(name)) is not None:
        return f" (that is Claude Code's name; here it is {quote(own)})"
    return suggest(name, known)

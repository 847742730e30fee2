"""Deferred tools: hidden from a run until it finds them with `tool_search`.

Tools that were found stay available for the session. Must not know where tools come from: a tool has the attribute
`deferred`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult
from retinue.core.tool_table import SEARCH
from retinue.engine.setup import Feature, RunSetup

MAX_NAMED = 100
"""Maximum number of names in the description; other tools can still be found."""
MAX_LOADED = 20
"""Maximum number of tools that one search loads: each one costs tokens in every later request."""
_SHOWN_CHARS = 200


def is_deferred(tool: Tool) -> bool:
    return bool(getattr(tool, "deferred", False))


def leave_out(tools: Mapping[str, Tool], named: Collection[str] = ()) -> dict[str, Tool]:
    """Return the tools that are shown from the start; tools in `named` are never deferred."""
    return {name: tool for name, tool in tools.items() if name in named or not is_deferred(tool)}


class DeferredTools(Feature):
    """Hides deferred tools. Must be the last feature entered: it keeps the tool table that it returns, to add to it."""

    name = "deferred tools"

    def __init__(self, named: Collection[str] = ()) -> None:
        """Tools in `named` are never deferred."""
        self._named = named
        self._loaded: set[str] = set()

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Replace deferred tools by the search tool; tools that were found earlier stay."""
        shown = leave_out(setup.tools, {*self._named, *self._loaded})
        waiting = {name: tool for name, tool in setup.tools.items() if name not in shown}
        if not waiting:
            return setup
        shown[SEARCH] = SearchTool(waiting, shown, self._loaded)
        return setup.change(tools=shown)


class SearchTool:
    """Finds and loads deferred tools by name and description."""

    effect = Effect.READ
    hint = "Look for further tools"
    guidelines: tuple[str, ...] = ()

    def __init__(self, waiting: dict[str, Tool], shown: dict[str, Tool], loaded: set[str]) -> None:
        """A found tool moves from `waiting` to `shown`, and its name is added to `loaded`."""
        self._waiting = waiting
        self._shown = shown
        self._loaded = loaded
        more = f" and {len(waiting) - MAX_NAMED} more" if len(waiting) > MAX_NAMED else ""
        listed = ", ".join(list(waiting)[:MAX_NAMED]) + more
        description = (
            "Look for tools that are not loaded yet. A tool is found when every word of the query is in its name or "
            f"description; it can be called from your next reply on. Not loaded: {listed}."
        )
        query = {"type": "string", "minLength": 1, "description": "Words, such as a tool's name"}
        parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        self.spec = ToolSpec(SEARCH, description, parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        query = str(arguments["query"])
        words = query.lower().split()
        found = [name for name, tool in self._waiting.items() if words and _fits(words, tool)]
        if not found:
            return ToolResult.of(f'No deferred tools matched "{query}".')
        taken = found[:MAX_LOADED]
        lines = [f"- {name}: {_shorten(self._waiting[name].spec.description)}" for name in taken]
        for name in taken:
            self._shown[name] = self._waiting.pop(name)
            self._loaded.add(name)
        head = f"Loaded {len(taken)} tool(s). Their full schemas are now available next turn:"
        if len(found) > len(taken):
            lines.append(f"({len(found) - len(taken)} more matched; look for them with more words than {quote(query)})")
        return ToolResult.of("\n".join((head, *lines)), {"loaded": taken})


def _fits(words: Collection[str], tool: Tool) -> bool:
    text = f"{tool.spec.name} {tool.hint} {tool.spec.description}".lower()
    return all(word in text for word in words)


def _shorten(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…"

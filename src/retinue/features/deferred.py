"""Tools that a run is not shown until it looks for them: `tool_search` finds them, and they are there from then on.

What was found stays for the session. Must not know where tools come from: one that waits says so by `deferred`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.run import Outcome
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult
from retinue.core.tool_table import SEARCH
from retinue.engine.setup import RunSetup

MAX_NAMED = 100
"""Names in the description; what is beyond is found all the same."""
MAX_LOADED = 20
"""Tools one search brings: each costs room in every request from then on."""
_SHOWN_CHARS = 200


def is_deferred(tool: Tool) -> bool:
    """Whether a tool waits until it is looked for."""
    return bool(getattr(tool, "deferred", False))


def leave_out(tools: Mapping[str, Tool], named: Collection[str] = ()) -> dict[str, Tool]:
    """The tools that are shown from the start; what somebody asked for by name does not wait."""
    return {name: tool for name, tool in tools.items() if name in named or not is_deferred(tool)}


class Deferring:
    """Hides the tools that wait. Must be entered last: it keeps the tools it hands over, to add to them."""

    name = "deferred tools"

    def __init__(self, named: Collection[str] = ()) -> None:
        """`named` do not wait."""
        self._named = named
        self._loaded: set[str] = set()

    async def enter(self, setup: RunSetup) -> RunSetup:
        """The setup without them, and with the tool that finds them; what was found before is there."""
        shown = leave_out(setup.tools, {*self._named, *self._loaded})
        waiting = {name: tool for name, tool in setup.tools.items() if name not in shown}
        if not waiting:
            return setup
        shown[SEARCH] = SearchTool(waiting, shown, self._loaded)
        return setup.change(tools=shown)

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing to undo: what was found belongs to the session."""
        return outcome


class SearchTool:
    """Loads tools by what is said of them."""

    effect = Effect.READ
    hint = "Look for further tools"
    guidelines: tuple[str, ...] = ()

    def __init__(self, waiting: dict[str, Tool], shown: dict[str, Tool], loaded: set[str]) -> None:
        """What is found goes from `waiting` to `shown`, and its name into `loaded`."""
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
        """Load what fits."""
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

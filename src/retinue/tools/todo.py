"""The todo_write tool: an agent's own todo list.

The tool has no state: the list is in the call and in the result, so it is part of the conversation and survives a
resume.
"""

from collections import Counter
from functools import cached_property
from typing import Any

from retinue.core.errors import ToolRetry
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.registry import load_description

MAX_ITEMS = 100
MAX_ITEM_CHARS = 500
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoTool:
    effect = Effect.READ
    hint = "Keep a to-do list"
    guidelines: tuple[str, ...] = ()

    @cached_property
    def spec(self) -> ToolSpec:
        item = {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "The task, in one line"},
                "status": {"type": "string", "enum": list(_MARKS)},
            },
            "required": ["content", "status"],
        }
        properties = {"todos": {"type": "array", "items": item, "description": "The whole list; empty clears it"}}
        parameters = {"type": "object", "properties": properties, "required": ["todos"]}
        return ToolSpec("todo_write", load_description(__file__), parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Check the list and return it as text. Raises ToolRetry for too many items, or an empty or too long one."""
        items = [
            {"content": " ".join(str(item["content"]).split()), "status": item["status"]} for item in arguments["todos"]
        ]
        if len(items) > MAX_ITEMS:
            raise ToolRetry(f"The list has {len(items)} items; at most {MAX_ITEMS} are kept. Combine some of them.")
        for number, item in enumerate(items, 1):
            if not 0 < len(item["content"]) <= MAX_ITEM_CHARS:
                raise ToolRetry(f"Item {number} needs a content of 1 to {MAX_ITEM_CHARS} characters.")
        return ToolResult.of(_render(items), {"todos": items})


def _render(items: list[dict[str, str]]) -> str:
    if not items:
        return "The list is empty."
    done = Counter(item["status"] for item in items)["completed"]
    lines = [f"{_MARKS[item['status']]} {item['content']}" for item in items]
    return "\n".join((f"{done} of {len(items)} done:", *lines))

"""Results that are one JSON object, for the model as text and for programs as it is; and how such a tool says no."""

from typing import Any

from retinue.core.messages import TextContent
from retinue.core.tool import ToolResult


def render_answer(details: dict[str, Any], *, note: str = "") -> ToolResult:
    """The object as text; a note about it stands behind it and is no part of it."""
    text = _print(details)
    content = [TextContent(text), *([TextContent(note)] if note else ())]
    return ToolResult(list(content), details)


def render_failure(code: str, message: str, **more: Any) -> ToolResult:
    """An expected failure, and what else is known about it."""
    details = {"error": {"code": code, "message": message}, **more}
    return ToolResult.of(_print(details), details, is_error=True)


def _print(details: dict[str, Any]) -> str:
    import json

    return json.dumps(details, indent=2, ensure_ascii=False)

"""Results that are one JSON object, for the model as text and for programs as it is; and how such a tool says no."""

import json
from typing import Any

from retinue.core.messages import TextContent
from retinue.core.tool import ToolResult


def render_answer(details: dict[str, Any], *, note: str = "") -> ToolResult:
    """The object as text; a note about it stands behind it and is no part of it."""
    text = json.dumps(details, indent=2, ensure_ascii=False)
    content = [TextContent(text), *([TextContent(note)] if note else ())]
    return ToolResult(list(content), details)


def render_failure(code: str, message: str) -> ToolResult:
    """An expected failure."""
    details = {"error": {"code": code, "message": message}}
    return ToolResult.of(json.dumps(details, indent=2, ensure_ascii=False), details, is_error=True)

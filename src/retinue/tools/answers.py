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


def cut_content(text: str, offset: int, most: int, *, is_short: bool = False) -> dict[str, Any]:
    """The part of a text that is shown, how much there is, and where to go on; `is_short`: it was cut before, too."""
    begin = min(offset, len(text))
    end = min(begin + most, len(text))
    shown = {"content": text[begin:end], "truncated": is_short or end < len(text)}
    shown |= {"offset": begin, "totalChars": len(text)}
    return shown | ({"nextOffset": end} if end < len(text) else {})


def _print(details: dict[str, Any]) -> str:
    import json

    return json.dumps(details, indent=2, ensure_ascii=False)

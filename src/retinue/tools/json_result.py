"""Results that are one JSON object, for the model as text and for programs as it is; and how such a tool says no."""

from typing import Any

from retinue.core.errors import quote
from retinue.core.messages import TextContent
from retinue.core.tool import ToolResult
from retinue.tools.arguments import is_whole


def render_answer(details: dict[str, Any], *, note: str = "") -> ToolResult:
    """The object as text; a note about it stands behind it and is no part of it."""
    text = _print(details)
    content = [TextContent(text), *([TextContent(note)] if note else ())]
    return ToolResult(list(content), details)


def render_failure(code: str, message: str, **more: Any) -> ToolResult:
    """An expected failure, and what else is known about it."""
    details = {"error": {"code": code, "message": message}, **more}
    return ToolResult.of(_print(details), details, is_error=True)


def explain_offset(offset: Any) -> str:
    """What is wrong with a place to begin at; empty when it is one."""
    is_right = is_whole(offset) and offset >= 0
    return "" if is_right else f"offset is {quote(offset)}: expected a whole number from 0"


def explain_end(offset: int, total: int) -> str:
    """What is wrong with a place to begin at in so many characters; empty when there is something to show."""
    return f"offset is {offset}: the content has {total} characters" if 0 < offset >= total else ""


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

"""What a server tells about the thing at a place."""

from typing import Any

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import Call
from retinue.tools.lsp.size_limit import bound


async def run(call: Call) -> ToolResult:
    """Its type and documentation."""
    target, position = await call.locate()
    answer = await target.session.ask("textDocument/hover", {**target.params, "position": position})
    text = to_text(answer.get("contents")) if isinstance(answer, dict) else ""
    return call.answer(text.strip() or "No hover information.", bound(answer))


def to_text(contents: Any) -> str:
    """The words of any of the forms that documentation has."""
    if isinstance(contents, str):
        return contents
    if isinstance(contents, dict):
        return str(contents.get("value", ""))
    return "\n\n".join(to_text(each) for each in contents) if isinstance(contents, list) else ""

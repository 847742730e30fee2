"""What the function being called at a place takes."""

from typing import Any

from retinue.core.tool import ToolResult
from retinue.tools.lsp.actions.hover import to_text
from retinue.tools.lsp.call import MAX_ITEMS, Call
from retinue.tools.lsp.size_limit import bound


async def run(call: Call) -> ToolResult:
    """Its signatures, the one in use marked."""
    target, position = await call.locate()
    answer = await target.session.ask("textDocument/signatureHelp", {**target.params, "position": position})
    return call.answer(_render(answer) or "No signature found.", bound(answer))


def _render(answer: Any) -> list[str]:
    signatures = answer.get("signatures") if isinstance(answer, dict) else None
    active = answer.get("activeSignature", 0) if isinstance(answer, dict) else 0
    lines: list[str] = []
    for index, each in enumerate(signatures[:MAX_ITEMS] if isinstance(signatures, list) else ()):
        if isinstance(each, dict):
            lines.append(f"{'*' if index == active else ' '} {each.get('label', '')}")
            lines += [f"    {line}" for line in to_text(each.get("documentation")).splitlines()[:20]]
    return lines

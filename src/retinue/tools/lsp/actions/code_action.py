"""What a server could do about a stretch of code. Nothing is done."""

from contextlib import suppress
from typing import Any

from retinue.core.tool import ToolResult
from retinue.tools.arguments import take_count
from retinue.tools.lsp.call import MAX_ITEMS, Call, Target
from retinue.tools.lsp.failure import LspFailed
from retinue.tools.lsp.size_limit import bound
from retinue.tools.lsp.symbols import read_point, read_start


async def run(call: Call) -> ToolResult:
    """The actions that a server offers there."""
    target, start = await call.locate()
    line, column = (take_count(call.arguments, name, 0) for name in ("endLine", "endColumn"))
    end = target.session.to_position(target.document, line, column or 1) if line else start
    context = {"diagnostics": await _list_complaints(target, start, end)}
    params = {**target.params, "range": {"start": start, "end": end}, "context": context}
    answer = await target.session.ask("textDocument/codeAction", params)
    actions = [item for item in answer if isinstance(item, dict)] if isinstance(answer, list) else []
    shown = actions[:MAX_ITEMS]
    lines = [f"{item.get('title', '')}{_name_kind(item)}" for item in shown]
    if lines:
        lines.insert(0, "offered, and not done:")
    details = {"actions": bound(shown), "total": len(actions), "truncated": len(actions) > len(shown)}
    return call.answer(lines or "No code actions.", details)


def _name_kind(item: dict[str, Any]) -> str:
    return f" ({item['kind']})" if isinstance(item.get("kind"), str) else ""


async def _list_complaints(target: Target, start: dict[str, int], end: dict[str, int]) -> list[Any]:
    """Those that touch the lines: most actions are offered for one."""
    found: list[dict[str, Any]] = []
    with suppress(LspFailed):
        found = await target.session.diagnose(target.document, target.session.server.wait_s)
    return [item for item in found if _touches(item.get("range"), start["line"], end["line"])]


def _touches(where: Any, first: int, last: int) -> bool:
    begin, finish = read_start(where), read_point(where.get("end")) if isinstance(where, dict) else None
    return begin is not None and finish is not None and begin["line"] <= last and finish["line"] >= first

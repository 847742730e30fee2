"""What a file defines."""

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import MAX_ITEMS, Call


async def run(call: Call) -> ToolResult:
    """Its symbols, or those whose name has the query in it."""
    target = await call.open_file()
    found = await call.list_symbols(target)
    wanted = call.query.casefold()
    lines = [symbol.render() for symbol in found if wanted in symbol.name.casefold()]
    shown = lines[:MAX_ITEMS]
    details = {"lines": shown, "total": len(lines), "truncated": len(lines) > len(shown)}
    if len(lines) > len(shown):
        shown = [*shown, f"[{len(shown)} of {len(lines)}]"]
    nothing = call.explain_miss(found) if call.query else "No symbols found."
    return call.answer(shown or nothing, details)

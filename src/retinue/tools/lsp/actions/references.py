"""Where something is used."""

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import Call
from retinue.tools.lsp.locations import render_locations


async def run(call: Call) -> ToolResult:
    """All places, the declaration included."""
    target, position = await call.locate()
    params = {**target.params, "position": position, "context": {"includeDeclaration": True}}
    return render_locations(await target.session.ask("textDocument/references", params), call, "No references found.")

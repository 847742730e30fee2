"""Where something is defined."""

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import Call
from retinue.tools.lsp.locations import render_locations


async def run(call: Call) -> ToolResult:
    """The places of the definition."""
    target, position = await call.locate()
    answer = await target.session.ask("textDocument/definition", {**target.params, "position": position})
    return render_locations(answer, call, "No definition found.")

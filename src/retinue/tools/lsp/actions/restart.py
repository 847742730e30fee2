"""Ends language servers, so that the next request starts them anew."""

from retinue.core.errors import quote
from retinue.core.tool import ToolResult
from retinue.tools.arguments import take_text
from retinue.tools.lsp.call import Call
from retinue.tools.lsp.failure import LspFailed
from retinue.tools.lsp.servers import SERVERS, resolve_server


async def run(call: Call) -> ToolResult:
    """One of them, or all."""
    name = take_text(call.arguments, "server", default="").strip()
    server = resolve_server(name) if name else None
    if name and server is None:
        known = ", ".join(each.id for each in SERVERS)
        raise LspFailed(f"No language server {quote(name)}; there are {known}.", "LSP_SERVER_NOT_FOUND")
    ended = await call.pool.restart(SERVERS if server is None else (server,))
    label = "all" if server is None else server.id
    details = {"restarted": ended > 0, "server": label, "restartedCount": ended}
    return call.answer(f"{ended} servers of {label} ended; they start with the next request.", details)

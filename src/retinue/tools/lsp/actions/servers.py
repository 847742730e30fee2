"""Which language servers there are. Starts none."""

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import Call
from retinue.tools.lsp.servers import SERVERS


async def run(call: Call) -> ToolResult:
    """All that are known: whether each is installed, and whether it runs."""
    running = [session.server.id for session in call.pool.list_sessions()]
    rows, lines = [], []
    for server in SERVERS:
        command = call.pool.find_command(server, call.workspace)
        state = "running" if server.id in running else "installed" if command else "not installed"
        row = {"id": server.id, "extensions": sorted(server.extensions), "status": state}
        rows.append({**row, "program": command[0]} if command else {**row, "install": server.install})
        detail = command[0] if command else server.install
        lines.append(f"{server.id}: {state} ({' '.join(sorted(server.extensions))}; {detail})")
    return call.answer(lines, {"servers": rows})

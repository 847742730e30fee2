"""What a server complains of in one file."""

from typing import Any

from msgspec import to_builtins

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import MAX_ITEMS, Call
from retinue.tools.lsp.diagnostics import diagnose


async def run(call: Call) -> ToolResult:
    """Its errors, warnings and so on, down to the severity that is asked for."""
    name = call.take_file()
    found = await diagnose(call, name)
    kept = found.keep(call.severity)
    shown = kept[:MAX_ITEMS]
    details: dict[str, Any] = {
        "diagnostics": to_builtins(list(shown)),
        "diagnosticsTotal": len(kept),
        "diagnosticsTruncated": len(kept) > len(shown),
        "receivedResponse": found.received,
        **({"unsupported": found.unsupported} if found.unsupported else {}),
        **({"error": found.error} if found.error else {}),
    }
    lines = [each.render(name) for each in shown]
    if len(kept) > len(shown):
        lines.append(f"[{len(shown)} of {len(kept)}]")
    return call.answer(lines or found.explain() or "No diagnostics.", details)

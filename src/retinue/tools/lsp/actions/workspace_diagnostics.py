"""What servers complain of in several files."""

from typing import Any

from msgspec import to_builtins

from retinue.core.errors import quote
from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import MAX_ITEMS, Call
from retinue.tools.lsp.diagnostics import Diagnosis, diagnose_all
from retinue.tools.lsp.failure import LspFailed

MAX_FILES = 64


async def run(call: Call) -> ToolResult:
    """The complaints of each file, and which files could not be judged."""
    found = await diagnose_all(call, _take_files(call))
    left, lines, items = MAX_ITEMS, list[str](), list[dict[str, Any]]()
    for each in found:
        kept = each.keep(call.severity)
        shown = kept[:left]
        left -= len(shown)
        items.append(_to_item(each, shown))
        problem = each.explain()
        lines += [complaint.render(each.file) for complaint in shown] or [f"{each.file}: {problem or 'ok'}"]
        if len(kept) > len(shown):
            lines.append(f"{each.file}: [{len(shown)} of {len(kept)}]")
    return call.answer(lines, {"items": items})


def _to_item(found: Diagnosis, shown: Any) -> dict[str, Any]:
    error = found.unsupported or found.error
    item = {"file": found.file, "diagnostics": to_builtins(list(shown)), "status": found.status}
    return {**item, "error": error} if error else item


def _take_files(call: Call) -> list[str]:
    files = call.arguments.get("files")
    names = [name for name in files if isinstance(name, str) and name.strip()] if isinstance(files, list) else []
    if not names:
        raise LspFailed(f'Action "{call.action}" requires files: a list of 1 to {MAX_FILES} paths.', "INVALID_INPUT")
    if len(names) > MAX_FILES:
        raise LspFailed(f'Action "{call.action}" takes at most {MAX_FILES} files, not {len(names)}.', "INVALID_INPUT")
    if bad := next((name for name in names if "\0" in name), None):
        raise LspFailed(f"files: {quote(bad)} is no path.", "INVALID_INPUT")
    return list(dict.fromkeys(names))

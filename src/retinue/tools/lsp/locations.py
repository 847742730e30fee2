"""Places in files, whichever of the forms a server gives them in."""

from typing import Any

from retinue.core.tool import ToolResult
from retinue.tools.lsp.call import MAX_ITEMS, Call
from retinue.tools.lsp.symbols import read_point, read_start


def to_locations(answer: Any, call: Call) -> list[dict[str, Any]]:
    """Each with `file`, `line` and `column` counted from 1, without repetition."""
    items = answer if isinstance(answer, list) else [answer]
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for item in items:
        if not isinstance(item, dict):
            continue
        where = item.get("targetSelectionRange") or item.get("range") or item.get("targetRange") or {}
        start = read_start(where)
        if start is None:
            continue
        file = call.show_path(item.get("targetUri") or item.get("uri"))
        end = read_point(where.get("end")) or start
        place: dict[str, Any] = {
            "file": file,
            "line": start["line"] + 1,
            "column": start["character"] + 1,
            "endLine": end["line"] + 1,
            "endColumn": end["character"] + 1,
        }
        found.setdefault((file, place["line"], place["column"]), place)
    return list(found.values())


def render_locations(answer: Any, call: Call, nothing: str) -> ToolResult:
    """The answer of an action that finds places."""
    places = to_locations(answer, call)
    shown = places[:MAX_ITEMS]
    lines = [f"{place['file']}:{place['line']}:{place['column']}" for place in shown]
    if len(places) > len(shown):
        lines.append(f"[{len(shown)} of {len(places)}]")
    details = {"results": shown, "total": len(places), "truncated": len(places) > len(shown)}
    return call.answer(lines or nothing, details)

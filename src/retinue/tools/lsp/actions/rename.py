"""What renaming something would change. Nothing is changed."""

from typing import Any

from retinue.core.tool import ToolResult
from retinue.tools.arguments import take_text
from retinue.tools.lsp.call import MAX_ITEMS, Call
from retinue.tools.lsp.failure import LspFailed
from retinue.tools.lsp.size_limit import bound
from retinue.tools.lsp.symbols import read_start


async def run(call: Call) -> ToolResult:
    """The edits that a server proposes, for the caller to make."""
    name = take_text(call.arguments, "newName", default="").strip()
    if not name:
        raise LspFailed(f'Action "{call.action}" requires newName.', "INVALID_INPUT")
    target, position = await call.locate()
    params = {**target.params, "position": position, "newName": name}
    answer = await target.session.ask("textDocument/rename", params)
    places = list(_list_places(answer, call))
    lines = [f"{file}:{line}:{column}: {text}" for file, line, column, text in places[:MAX_ITEMS]]
    if len(places) > MAX_ITEMS:
        lines.append(f"[{MAX_ITEMS} of {len(places)}]")
    if lines:
        lines.insert(0, f"{len(places)} edits proposed; none is made:")
    return call.answer(lines or "Nothing to rename here.", bound(answer))


def _list_places(answer: Any, call: Call) -> Any:
    if not isinstance(answer, dict):
        return
    changes = answer.get("changes")
    pairs = list(changes.items()) if isinstance(changes, dict) else []
    for change in answer.get("documentChanges") or ():
        if isinstance(change, dict) and isinstance(change.get("textDocument"), dict):
            pairs.append((change["textDocument"].get("uri"), change.get("edits")))
    for uri, edits in pairs:
        for edit in edits if isinstance(edits, list) else ():
            start = read_start(edit.get("range")) if isinstance(edit, dict) else None
            if start is not None:
                text = str(edit.get("newText", ""))[:200]
                yield call.show_path(uri), start["line"] + 1, start["character"] + 1, text

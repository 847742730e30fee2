"""The actions of the `lsp` tool: one function per action, listed by name in `RUNNERS`."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import to_builtins

from retinue.core.errors import quote
from retinue.core.tool import ToolResult
from retinue.tools.arguments import take_count, take_text
from retinue.tools.lsp.call import MAX_CHARS, MAX_ITEMS, LspCall, LspTarget, read_point, read_start
from retinue.tools.lsp.diagnostics import FileDiagnostics, diagnose, diagnose_all
from retinue.tools.lsp.jsonrpc import LspFailed
from retinue.tools.lsp.servers import SERVERS, resolve_server

MAX_FILES = 64


async def find_definition(call: LspCall) -> ToolResult:
    target, position = await call.locate()
    answer = await target.session.ask("textDocument/definition", {**target.params, "position": position})
    return render_locations(answer, call, "No definition found.")


async def find_references(call: LspCall) -> ToolResult:
    """Find all references, including the declaration."""
    target, position = await call.locate()
    params = {**target.params, "position": position, "context": {"includeDeclaration": True}}
    return render_locations(await target.session.ask("textDocument/references", params), call, "No references found.")


def to_locations(answer: Any, call: LspCall) -> list[dict[str, Any]]:
    """Return each location once, with `file`, and `line` and `column` counted from 1."""
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


def render_locations(answer: Any, call: LspCall, nothing: str) -> ToolResult:
    places = to_locations(answer, call)
    shown = places[:MAX_ITEMS]
    lines = [f"{place['file']}:{place['line']}:{place['column']}" for place in shown]
    if len(places) > len(shown):
        lines.append(f"[{len(shown)} of {len(places)}]")
    details = {"results": shown, "total": len(places), "truncated": len(places) > len(shown)}
    return call.answer(lines or nothing, details)


async def show_hover(call: LspCall) -> ToolResult:
    """Show the type and documentation of a symbol."""
    target, position = await call.locate()
    answer = await target.session.ask("textDocument/hover", {**target.params, "position": position})
    text = to_text(answer.get("contents")) if isinstance(answer, dict) else ""
    return call.answer(text.strip() or "No hover information.", bound(answer))


def to_text(contents: Any) -> str:
    """Return the text of documentation in any of the protocol's forms."""
    if isinstance(contents, str):
        return contents
    if isinstance(contents, dict):
        return str(contents.get("value", ""))
    return "\n\n".join(to_text(each) for each in contents) if isinstance(contents, list) else ""


async def show_signature(call: LspCall) -> ToolResult:
    """Show the signatures of a call and mark the active one."""
    target, position = await call.locate()
    answer = await target.session.ask("textDocument/signatureHelp", {**target.params, "position": position})
    return call.answer(_render_signatures(answer) or "No signature found.", bound(answer))


def _render_signatures(answer: Any) -> list[str]:
    signatures = answer.get("signatures") if isinstance(answer, dict) else None
    active = answer.get("activeSignature", 0) if isinstance(answer, dict) else 0
    lines: list[str] = []
    for index, each in enumerate(signatures[:MAX_ITEMS] if isinstance(signatures, list) else ()):
        if isinstance(each, dict):
            lines.append(f"{'*' if index == active else ' '} {each.get('label', '')}")
            lines += [f"    {line}" for line in to_text(each.get("documentation")).splitlines()[:20]]
    return lines


async def list_file_symbols(call: LspCall) -> ToolResult:
    """List the symbols of a file, or only those whose name contains the query."""
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


async def show_diagnostics(call: LspCall) -> ToolResult:
    """Show the diagnostics of one file, down to the requested severity."""
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


async def show_workspace_diagnostics(call: LspCall) -> ToolResult:
    """Show the diagnostics of several files, and which files could not be checked."""
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


def _to_item(found: FileDiagnostics, shown: Any) -> dict[str, Any]:
    error = found.unsupported or found.error
    item = {"file": found.file, "diagnostics": to_builtins(list(shown)), "status": found.status}
    return {**item, "error": error} if error else item


def _take_files(call: LspCall) -> list[str]:
    files = call.arguments.get("files")
    names = [name for name in files if isinstance(name, str) and name.strip()] if isinstance(files, list) else []
    if not names:
        raise LspFailed(f'Action "{call.action}" requires files: a list of 1 to {MAX_FILES} paths.', "INVALID_INPUT")
    if len(names) > MAX_FILES:
        raise LspFailed(f'Action "{call.action}" takes at most {MAX_FILES} files, not {len(names)}.', "INVALID_INPUT")
    if bad := next((name for name in names if "\0" in name), None):
        raise LspFailed(f"files: {quote(bad)} is not a path: it contains a NUL character.", "INVALID_INPUT")
    return list(dict.fromkeys(names))


async def list_servers(call: LspCall) -> ToolResult:
    """List all known servers, and whether each is installed and running."""
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


async def preview_rename(call: LspCall) -> ToolResult:
    """Show the edits that a server proposes for a rename; nothing is changed."""
    name = take_text(call.arguments, "newName", default="").strip()
    if not name:
        raise LspFailed(f'Action "{call.action}" requires newName.', "INVALID_INPUT")
    target, position = await call.locate()
    params = {**target.params, "position": position, "newName": name}
    answer = await target.session.ask("textDocument/rename", params)
    places = list(_list_edits(answer, call))
    lines = [f"{file}:{line}:{column}: {text}" for file, line, column, text in places[:MAX_ITEMS]]
    if len(places) > MAX_ITEMS:
        lines.append(f"[{MAX_ITEMS} of {len(places)}]")
    if lines:
        lines.insert(0, f"{len(places)} edits proposed; none is made:")
    return call.answer(lines or "Nothing to rename here.", bound(answer))


def _list_edits(answer: Any, call: LspCall) -> Any:
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


async def list_code_actions(call: LspCall) -> ToolResult:
    """List the code actions that a server offers at a position; none is executed."""
    target, start = await call.locate()
    line, column = (take_count(call.arguments, name, 0) for name in ("endLine", "endColumn"))
    end = target.session.to_position(target.document, line, column or 1) if line else start
    context = {"diagnostics": await _list_complaints(target, start, end)}
    params = {**target.params, "range": {"start": start, "end": end}, "context": context}
    answer = await target.session.ask("textDocument/codeAction", params)
    actions = [item for item in answer if isinstance(item, dict)] if isinstance(answer, list) else []
    shown = actions[:MAX_ITEMS]
    lines = [f"{item.get('title', '')}{_render_kind(item)}" for item in shown]
    if lines:
        lines.insert(0, "available code actions (none was executed):")
    details = {"actions": bound(shown), "total": len(actions), "truncated": len(actions) > len(shown)}
    return call.answer(lines or "No code actions.", details)


def _render_kind(item: dict[str, Any]) -> str:
    return f" ({item['kind']})" if isinstance(item.get("kind"), str) else ""


async def _list_complaints(target: LspTarget, start: dict[str, int], end: dict[str, int]) -> list[Any]:
    """Return the diagnostics on these lines, because most code actions are offered for one."""
    found: list[dict[str, Any]] = []
    with suppress(LspFailed):
        found = await target.session.diagnose(target.document, target.session.server.wait_s)
    return [item for item in found if _touches(item.get("range"), start["line"], end["line"])]


def _touches(where: Any, first: int, last: int) -> bool:
    begin, finish = read_start(where), read_point(where.get("end")) if isinstance(where, dict) else None
    return begin is not None and finish is not None and begin["line"] <= last and finish["line"] >= first


async def restart_servers(call: LspCall) -> ToolResult:
    """Stop one server or all; they start again with the next request."""
    name = take_text(call.arguments, "server", default="").strip()
    server = resolve_server(name) if name else None
    if name and server is None:
        known = ", ".join(each.id for each in SERVERS)
        raise LspFailed(f"Unknown language server {quote(name)}. Choose one of: {known}.", "LSP_SERVER_NOT_FOUND")
    ended = await call.pool.restart(SERVERS if server is None else (server,))
    label = "all" if server is None else server.id
    details = {"restarted": ended > 0, "server": label, "restartedCount": ended}
    return call.answer(f"Stopped servers of {label}: {ended}. They start again with the next request.", details)


def bound(value: Any) -> Any:
    """Return a JSON value, or the beginning of its text if it is too long."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_CHARS else {"truncated": True, "total": len(text), "text": text[:MAX_CHARS]}


RUNNERS: dict[str, Callable[[LspCall], Awaitable[ToolResult]]] = {
    "definition": find_definition,
    "references": find_references,
    "hover": show_hover,
    "signature": show_signature,
    "symbols": list_file_symbols,
    "diagnostics": show_diagnostics,
    "workspace-diagnostics": show_workspace_diagnostics,
    "servers": list_servers,
    "rename": preview_rename,
    "codeAction": list_code_actions,
    "restart": restart_servers,
}

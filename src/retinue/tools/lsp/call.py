"""One call of the `lsp` tool: its arguments, the files and symbols it names, and the server to ask."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.launch import Territory
from retinue.core.tool import ToolResult
from retinue.tools.arguments import take_count, take_path, take_text
from retinue.tools.lsp.documents import OpenDocument, Stamp, read_source, show_path
from retinue.tools.lsp.jsonrpc import LspFailed, NoServer
from retinue.tools.lsp.pool import LspPool, ServerPlace
from retinue.tools.lsp.servers import find_root, find_server
from retinue.tools.lsp.session import LspSession
from retinue.tools.paths import explain, resolve_existing

_KINDS = (
    *("file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum"),
    *("interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key"),
    *("null", "enum member", "struct", "event", "operator", "type parameter"),
)
MAX_SYMBOLS = 20_000
MAX_ITEMS = 200
MAX_CHARS = 60_000
MAX_NAMES = 20
SEVERITIES = ("error", "warning", "info", "hint")


class Symbol(Struct, frozen=True):
    name: str
    kind: str
    start: dict[str, int]
    """The position of its name, as the server counts."""
    depth: int = 0

    @property
    def line(self) -> int:
        return self.start["line"] + 1

    @property
    def column(self) -> int:
        return self.start["character"] + 1

    def render(self) -> str:
        """Render one line, indented by nesting depth."""
        return f"{'  ' * min(self.depth, 20)}{self.kind} {self.name} ({self.line}:{self.column})"


def list_symbols(answer: Any) -> list[Symbol]:
    """Return all symbols in file order, with their nesting depth."""
    found: list[Symbol] = []
    # A stack instead of recursion, because the server decides the depth.
    waiting = [(item, 0) for item in reversed(answer)] if isinstance(answer, list) else []
    while waiting and len(found) < MAX_SYMBOLS:
        item, depth = waiting.pop()
        if not isinstance(item, dict):
            continue
        where = item.get("selectionRange") or item.get("range") or (item.get("location") or {}).get("range") or {}
        start = read_start(where)
        if start is not None:
            found.append(Symbol(str(item.get("name", ""))[:500], _name_kind(item.get("kind")), start, depth))
        children = item.get("children")
        waiting += [(child, depth + 1) for child in reversed(children)] if isinstance(children, list) else []
    return found


def find_symbol(symbols: list[Symbol], query: str) -> Symbol | None:
    """Return the first symbol of that name, else the first whose name contains the query; ignores case."""
    wanted = query.casefold()
    exact = next((symbol for symbol in symbols if symbol.name == query), None)
    exact = exact or next((symbol for symbol in symbols if symbol.name.casefold() == wanted), None)
    return exact or next((symbol for symbol in symbols if wanted in symbol.name.casefold()), None)


def read_start(where: Any) -> dict[str, int] | None:
    """Return the start of a range; None if it is invalid."""
    start = where.get("start") if isinstance(where, dict) else None
    return read_point(start)


def read_point(point: Any) -> dict[str, int] | None:
    """Return a position; None if it is invalid."""
    if not isinstance(point, dict):
        return None
    line, character = point.get("line"), point.get("character")
    if not isinstance(line, int) or not isinstance(character, int):
        return None
    return {"line": line, "character": character}


def _name_kind(kind: Any) -> str:
    return _KINDS[kind - 1] if isinstance(kind, int) and 0 < kind <= len(_KINDS) else "symbol"


@dataclass(frozen=True, slots=True)
class LspTarget:
    """A file and the server that has it open."""

    session: LspSession
    document: OpenDocument

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that name the file in a request."""
        return {"textDocument": {"uri": self.document.uri}}


@dataclass(slots=True)
class LspCall:
    """The arguments and context of one call."""

    action: str
    arguments: Mapping[str, Any]
    workspace: str
    """A real path."""
    pool: LspPool
    readonly: bool
    territory: Territory
    notes: list[str] = field(default_factory=list)
    """Lines at the start of the result."""

    def take_file(self) -> str:
        """Return the `file` argument as given. Raises LspFailed."""
        if not str(self.arguments.get("file") or "").strip():
            raise LspFailed(f'Action "{self.action}" requires a file path.', "INVALID_INPUT")
        return take_path(self.arguments, "file")

    def find_file(self, name: str) -> str:
        """Return the real path of a file. Raises LspFailed if it is outside the workspace."""
        real = os.path.realpath(resolve_existing(name, Path(self.workspace)))
        if real != self.workspace and not real.startswith(self.workspace.rstrip("/") + "/"):
            raise LspFailed(f"LSP file access outside workspace is not allowed: {quote(name, 300)[1:-1]}", "")
        return real

    def read_file(self, name: str) -> tuple[str, str, Stamp]:
        """Return real path, text and stamp. Raises LspFailed, ToolFailed, OSError, or ValueError (not source code)."""
        real = self.find_file(name)
        return real, *read_source(real, name, self.territory)

    async def open(self, name: str) -> LspTarget:
        """Open a file in its server. Raises NoServer, LspFailed, OSError or ValueError."""
        real, text, stamp = self.read_file(name)
        server = find_server(real)
        if server is None:
            ending = os.path.splitext(real)[1] or os.path.basename(real)
            raise NoServer(f"no language server is known for {quote(ending)} files")
        root = find_root(server, real, self.workspace)
        session = await self.pool.reach(ServerPlace(server, root, self.readonly, self.workspace))
        return LspTarget(session, await session.show(real, text, stamp, self.territory))

    async def open_file(self) -> LspTarget:
        """Open the file of the `file` argument. Raises NoServer, LspFailed or ToolRetry."""
        name = self.take_file()
        try:
            return await self.open(name)
        except OSError as error:
            raise explain(error, name, self.find_file(name)) from error
        except ValueError as error:
            raise NoServer(f"{quote(name, 200)}: {error}") from error

    async def locate(self) -> tuple[LspTarget, dict[str, int]]:
        """Return the file and the position, given by line and column or by the symbol that the query names."""
        target = await self.open_file()
        line, column = self._take_place()
        if line == 0:
            symbol = await self._resolve(target)
            self.notes.append(f"resolvedPosition: {symbol.line}:{symbol.column} ({symbol.name})")
            return target, symbol.start
        return target, target.session.to_position(target.document, line, column)

    def _take_place(self) -> tuple[int, int]:
        line, column = (take_count(self.arguments, name, 0) for name in ("line", "column"))
        if line and column:
            return line, column
        if not self.query:
            raise LspFailed(
                f'Action "{self.action}" requires line/column or a query matching a symbol.', "INVALID_INPUT"
            )
        return 0, 0

    @property
    def query(self) -> str:
        """The name of a symbol, or a part of it."""
        return take_text(self.arguments, "query", default="").strip()

    @property
    def severity(self) -> str:
        """The lowest severity to show."""
        return str(self.arguments.get("severity") or "all")

    async def _resolve(self, target: LspTarget) -> Symbol:
        symbols = await self.list_symbols(target)
        found = find_symbol(symbols, self.query)
        if found is None:
            text = f'Action "{self.action}" requires line/column or a query matching a symbol.'
            raise LspFailed(f"{text} {self.explain_miss(symbols)}", "INVALID_INPUT")
        return found

    def explain_miss(self, symbols: list[Symbol]) -> str:
        """Say that the query matches none of these symbols."""
        names = list(dict.fromkeys(symbol.name for symbol in symbols))
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        listed = f"; it has {', '.join(names[:MAX_NAMES])}{more}." if names else ": it has none."
        return f"No symbol of {quote(self.take_file(), 200)} matches {quote(self.query, 200)}{listed}"

    async def list_symbols(self, target: LspTarget) -> list[Symbol]:
        return list_symbols(await target.session.ask("textDocument/documentSymbol", target.params))

    def show_path(self, uri: Any) -> str:
        return show_path(uri, self.workspace)

    def answer(self, lines: Iterable[str] | str, details: Any) -> ToolResult:
        """Build the result: the request, then the lines."""
        head = [f"action: {self.action}", *([f"query: {self.query[:200]}"] if self.query else ())]
        if self.arguments.get("severity"):
            head.append(f"severity: {self.severity}")
        body = lines if isinstance(lines, str) else "\n".join(lines)
        return ToolResult.of(cut("\n".join((*head, *self.notes, body))), details)


def cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    note = f"\n[cut at {MAX_CHARS} characters]"
    return text[: MAX_CHARS - len(note)] + note

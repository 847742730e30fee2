"""The symbols of a file, whichever of the two forms a server gives them in."""

from typing import Any

from msgspec import Struct

_KINDS = (
    *("file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum"),
    *("interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key"),
    *("null", "enum member", "struct", "event", "operator", "type parameter"),
)
MAX_SYMBOLS = 20_000


class Symbol(Struct, frozen=True):
    """Something with a name."""

    name: str
    kind: str
    start: dict[str, int]
    """Where its name is, as the server counts."""
    depth: int = 0

    @property
    def line(self) -> int:
        return self.start["line"] + 1

    @property
    def column(self) -> int:
        return self.start["character"] + 1

    def render(self) -> str:
        """One line, indented by what it is inside of."""
        return f"{'  ' * min(self.depth, 20)}{self.kind} {self.name} ({self.line}:{self.column})"


def list_symbols(answer: Any) -> list[Symbol]:
    """All of them, in the order of the file, with what is inside of which."""
    found: list[Symbol] = []
    # A stack instead of a recursion: how deep it goes is the server's word.
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
    """The first of that name, else the first whose name has the query in it, whatever the case."""
    wanted = query.casefold()
    exact = next((symbol for symbol in symbols if symbol.name == query), None)
    exact = exact or next((symbol for symbol in symbols if symbol.name.casefold() == wanted), None)
    return exact or next((symbol for symbol in symbols if wanted in symbol.name.casefold()), None)


def read_start(where: Any) -> dict[str, int] | None:
    """The beginning of a range; None when it is none."""
    start = where.get("start") if isinstance(where, dict) else None
    return read_point(start)


def read_point(point: Any) -> dict[str, int] | None:
    """A place in a file; None when it is none."""
    if not isinstance(point, dict):
        return None
    line, character = point.get("line"), point.get("character")
    if not isinstance(line, int) or not isinstance(character, int):
        return None
    return {"line": line, "character": character}


def _name_kind(kind: Any) -> str:
    return _KINDS[kind - 1] if isinstance(kind, int) and 0 < kind <= len(_KINDS) else "symbol"

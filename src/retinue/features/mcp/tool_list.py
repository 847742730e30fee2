"""Sanitise the tool list of an MCP server for the model: bounded sizes, no control characters. Pure.

Only the names and argument schemas of tools are used; nothing else a server sends is trusted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.pattern import late_pattern

MAX_TOOLS = 128
"""Maximum number of tools of one server; more would fill the context of every request."""
MAX_NAME = 128
MAX_DESCRIPTION = 4_000
MAX_SCHEMA = 32_000
"""Characters of a schema as JSON."""
MAX_DEPTH = 24
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
# Control characters except newline and tab, and characters that reorder or hide text: bidi marks, zero-width, tags.
_ODD = late_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


class ListedTool(Struct, frozen=True):
    name: str
    """The server's name for it."""
    description: str
    schema: dict[str, Any]
    fingerprint: str
    """Digest of everything the server says about the tool; if it differs, the tool has changed."""


def read_listing(raw: Iterable[Mapping[str, Any]]) -> tuple[list[ListedTool], list[str]]:
    """Return the usable tools in order, and one sentence for each problem."""
    found: dict[str, ListedTool] = {}
    problems: list[str] = []
    for item in raw:
        name = item.get("name")
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or _ODD.search(name) or "\n" in name:
            problems.append(f"a tool is named {quote(name)}: skipped")
            continue
        if name in found:
            problems.append(f"the tool {quote(name)} is listed twice: the first is used")
            continue
        if len(found) >= MAX_TOOLS:
            problems.append(f"it has more than {MAX_TOOLS} tools: the others are left out")
            break
        schema = item.get("inputSchema")
        text = _to_json([item.get(key) for key in ("name", "title", "description", "inputSchema")])
        if text is None or not isinstance(schema, dict) or len(_to_json(schema) or "") > MAX_SCHEMA:
            problems.append(f"the schema of the tool {quote(name)} is larger than {MAX_SCHEMA} characters: skipped")
            continue
        found[name] = ListedTool(name, _describe(item), clean_schema(schema), _digest(text))
    return list(found.values()), problems


def clean_text(text: str, limit: int) -> str:
    """Remove characters that could trick a terminal or a reader, and limit the length."""
    cleaned = _ODD.sub("", text[: limit * 2])
    return cleaned if len(cleaned) <= limit and len(text) <= limit * 2 else f"{cleaned[: limit - 1]}…"


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object schema that our argument check can rely on; invalid parts are dropped."""
    cleaned = _clean(schema, 0)
    return {**cleaned, "type": "object", "properties": cleaned.get("properties", {})}


def _clean(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        return {}
    return {key: value for key, given in schema.items() if (value := _clean_keyword(key, given, depth)) is not None}


def _clean_keyword(key: str, value: Any, depth: int) -> Any:
    match key:
        case "type":
            names = [name for name in (value if isinstance(value, list) else [value]) if name in _TYPES]
            return None if not names else names if isinstance(value, list) else names[0]
        case "properties":
            fields = value.items() if isinstance(value, Mapping) else ()
            return {name: _clean(field, depth + 1) for name, field in fields if isinstance(field, Mapping)}
        case "required":
            return [name for name in value if isinstance(name, str)] if isinstance(value, list) else None
        case "items":
            return _clean(value, depth + 1) if isinstance(value, Mapping) else None
        case "enum":
            return value if isinstance(value, list) and value else None
        case "minimum" | "maximum" | "minLength" | "minItems":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "description" | "title":
            return clean_text(value, MAX_DESCRIPTION) if isinstance(value, str) else None
    return _clean_texts(value, depth + 1)


def _clean_texts(value: Any, depth: int) -> Any:
    """Clean keywords that our check ignores but the model may read."""
    if isinstance(value, str):
        return clean_text(value, MAX_DESCRIPTION)
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {key: _clean_texts(item, depth + 1) for key, item in value.items()}
    return [_clean_texts(item, depth + 1) for item in value] if isinstance(value, list) else value


def _describe(item: Mapping[str, Any]) -> str:
    texts = [item.get("description"), item.get("title")]
    return next((clean_text(text, MAX_DESCRIPTION) for text in texts if isinstance(text, str) and text.strip()), "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _to_json(value: Any) -> str | None:
    """Return canonical JSON; None if it is nested too deeply."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=True)
    except (RecursionError, TypeError, ValueError):
        return None

"""A server's question to the user: each field of its form becomes a question. Must not know the MCP library."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from retinue.core.run import Question
from retinue.features.mcp.tool_list import clean_text

AskUser: TypeAlias = Callable[[Question], Awaitable[str | None]]
"""Returns the user's answer; None if nobody can answer."""
MAX_FIELDS = 12
MAX_OPTIONS = 40
_TRUTHS = {"true": True, "false": False}


async def fill_form(server: str, message: str, schema: Any, ask: AskUser) -> dict[str, Any] | None:
    """Return the user's answers by field; None if the user declines or cannot be asked."""
    title = f"MCP server {server!r} asks: {clean_text(message, 2_000)}"
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping) or not fields:
        return {} if await ask(_to_question(title, "", ("accept", "decline"))) == "accept" else None
    if len(fields) > MAX_FIELDS:
        return None
    required = schema.get("required")
    filled: dict[str, Any] = {}
    for name, field in fields.items():
        if not isinstance(field, Mapping):
            return None
        is_needed = isinstance(required, list) and name in required
        options = _list_options(field)
        answer = await ask(_describe(title, name, field, options, is_needed=is_needed))
        if answer is None:
            return None
        value = _convert(answer.strip(), field, options) if answer.strip() else field.get("default")
        if value is not None:
            filled[name] = value
        elif is_needed:
            return None
    return filled


def _describe(
    title: str, name: str, field: Mapping[str, Any], options: Mapping[str, Any], *, is_needed: bool
) -> Question:
    """Return the question for one field."""
    has_many = field.get("type") == "array"
    label = clean_text(str(field.get("title") or name), 200)
    notes = [clean_text(str(field["description"]), 1_000)] if field.get("description") else []
    notes += [f"Several of: {', '.join(options)}; separate them with commas."] if has_many else []
    if field.get("default") is not None:
        notes.append(f"An empty answer means {clean_text(str(field['default']), 200)}.")
    elif not is_needed:
        notes.append("An empty answer leaves it out.")
    return _to_question(f"{title}\n{label}", "\n".join(notes), () if has_many else tuple(options))


def _list_options(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the possible values of a field by what the user sees."""
    if field.get("type") == "boolean":
        return dict(_TRUTHS)
    source: Any = field.get("items") if field.get("type") == "array" else field
    source = source if isinstance(source, Mapping) else {}
    named = source.get("oneOf") or source.get("anyOf")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(named, list):
        pairs = [
            (each.get("title") or each.get("const"), each.get("const")) for each in named if isinstance(each, dict)
        ]
    elif isinstance(source.get("enum"), list):
        labels = source.get("enumNames")
        pairs = [*zip(labels if isinstance(labels, list) else source["enum"], source["enum"], strict=False)]
    return {clean_text(str(label), 200): value for label, value in pairs[:MAX_OPTIONS] if isinstance(value, str)}


def _convert(answer: str, field: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Return an answer as the type of its field; None if it is none."""
    if field.get("type") == "array":
        words = [word.strip() for word in answer.split(",")]
        return [options[word] for word in words if word in options]
    if options:
        return options.get(answer)
    try:
        match field.get("type"):
            case "integer":
                return int(answer)
            case "number":
                return float(answer)
    except ValueError:
        return None
    return answer


def _to_question(title: str, text: str, options: tuple[str, ...]) -> Question:
    return Question(
        id=f"mcp-{secrets.token_hex(8)}",
        run_id="",
        kind="select" if options else "input",
        title=title,
        text=text,
        options=options,
        default="",
        also=("",),
    )

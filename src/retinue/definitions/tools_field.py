"""Read the tool lists of an agent file: which tools it allows and forbids, and mistakes in the names. Pure.

What a run may use is decided elsewhere and is never more. This file must not know dialects.
"""

from collections.abc import Collection, Iterable, Mapping

from retinue.core.definition import DeclaredTools
from retinue.core.errors import quote
from retinue.core.tool import ELSEWHERE, Effect, suggest_tool
from retinue.core.tool_table import KNOWN_TOOLS, TOOLS
from retinue.definitions.fields import AgentFields, find_close
from retinue.definitions.frontmatter import Scalar

_WRITERS = frozenset(row.name for row in TOOLS if row.effect is Effect.WRITE)
SELECTOR = "ext:"


def declare_tools(
    fields: AgentFields, *, allow: str = "tools", aliases: Mapping[str, str] | None = None
) -> DeclaredTools:
    foreign = aliases or {}
    denied, is_clear = _read_denied(fields, foreign)
    words = read_allowed(fields, allow)
    if words is None and is_clear:
        return DeclaredTools(denied=denied, aliases=dict(foreign))
    selectors = tuple(word for word in words or () if word.startswith(SELECTOR))
    names = tuple(word for word in words or () if not word.startswith(SELECTOR) and word.lower() not in ("*", "all"))
    has_all = any(word.lower() in ("*", "all") for word in words or ())
    check_names(fields, allow, names, foreign)
    if not is_clear:
        return DeclaredTools(names=(), denied=denied, selectors=_NOTHING)
    used = {name: foreign[name] for name in (foreign if has_all else names) if name in foreign}
    return DeclaredTools(names, has_all, denied=denied, selectors=selectors, aliases=used)


_NOTHING = (SELECTOR,)
"""For a list that cannot be parsed: a selector that matches no tool, so that extensions and servers give none
either."""


def read_allowed(fields: AgentFields, field: str) -> tuple[str, ...] | None:
    """The words of an allow-list; None if the file has no such field. Unusable values give no tools."""
    value = fields.get(field)
    if value is None:
        return None
    if isinstance(value, Scalar) and value.is_null:
        fields.reject(field, "names, or `none`; leave the field out for the default", "no tools")
        return _NOTHING
    words = fields.read_words(field)
    if words is None:
        fields.reject(field, "a list of tool names, `*` or `none`", "no tools")
        return _NOTHING
    return () if words == ("none",) else words


def check_names(fields: AgentFields, field: str, names: Collection[str], aliases: Collection[str] = ()) -> None:
    """Report unknown tool names."""
    for sentence in list_unknown(names, {*KNOWN_TOOLS, *aliases}):
        fields.report(f"{fields.name(field)}: {sentence}; not given", field, None, "unknown-tool", "warning")


def list_unknown(names: Iterable[str], known: Collection[str] = KNOWN_TOOLS) -> list[str]:
    """Return a sentence about each unknown name. Tools of MCP servers are accepted: the servers are not known yet."""
    found = []
    for name in names:
        if name in known or (":" in name and not name.startswith(":")):
            continue
        if name.startswith("mcp__") and "*" not in name:
            continue
        hint = "; list each tool, or ext:mcp for all" if name.startswith("mcp__") else suggest_tool(name, known)
        found.append(f"there is no tool {quote(name)}{hint}")
    return found


def _read_denied(fields: AgentFields, aliases: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """The denied names, and whether they could be read; a misspelt name also denies the tool it resembles."""
    field = "disallowed_tools"
    if not fields.has(field):
        return (), True
    words = fields.read_words(field)
    if words is None:
        fields.reject(field, "a list of tool names", "the agent gets no tools")
        return (), False
    value = fields.get(field)
    if words == ("none",) or (isinstance(value, Scalar) and value.is_null):
        return (), True
    denied = [aliases.get(word, word) for word in words]
    by_case = {name.lower(): name for name in (*KNOWN_TOOLS, *aliases)}
    for word in words:
        is_pattern = word in ("*", "all") or ":" in word or word.startswith("mcp__")
        if word in KNOWN_TOOLS or word in aliases or is_pattern:
            continue
        meant = ELSEWHERE.get(word) or by_case.get(word.lower())
        meant = meant or by_case.get(find_close(word.lower(), by_case, 0.6) or "")
        end = f"{quote(meant)} is forbidden" if meant else "it forbids nothing yet"
        text = f"{fields.name(field)}: there is no tool {quote(word)}; {end}"
        fields.report(text, field, None, "unknown-tool", "warning")
        if meant:
            denied.append(aliases.get(meant, meant))
    return tuple(dict.fromkeys(denied)), True


def check_readonly(fields: AgentFields, tools: DeclaredTools, *, readonly: bool, field: str = "tools") -> None:
    """Warn that a read-only agent does not get the writing tools its file lists."""
    listed = [name for name in tools.names or () if tools.aliases.get(name, name) in _WRITERS]
    if readonly and listed:
        text = f"{fields.name(field)}: {', '.join(listed)} listed in a read-only agent; not given"
        fields.report(text, field, None, "contradiction", "warning")

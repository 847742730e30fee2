"""What the dialects of other tools share: fields, tool lists and models become a Definition with a report. Pure.

Nothing that restricts is dropped: a restriction that cannot be expressed disables the agent and names the field. The
tables of each tool are in its file in `dialects`.
"""

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from retinue.core.definition import DeclaredTools, Definition, Source
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.core.tool import Effect
from retinue.core.tool_table import BUILTIN_TOOLS, EFFECTS, KNOWN_TOOLS
from retinue.definitions.document import choose_prompt, find_fault, open_document, read_description, read_name
from retinue.definitions.fields import find_close, fold_key
from retinue.definitions.foreign_fields import ForeignFields, ForeignTables
from retinue.definitions.frontmatter import (
    Items,
    Scalar,
    Value,
    YamlTable,
)

DELEGATION = tuple(name for name, effect in EFFECTS.items() if effect is Effect.DELEGATE)
WRITERS = frozenset(name for name, effect in EFFECTS.items() if effect is Effect.WRITE)
WEB = ("fetch_content", "get_search_content", "convert_content")
_PATTERN = late_pattern(r"([^()]+)\((.*)\)\Z", re.DOTALL)
_SERVER_LIMIT = late_pattern(r"tool|allow|den(y|ied)|exclu|disab|block|readonly")
"""Words in the name of a field of an MCP server that say that it restricts the agent."""
_TOOL_NAME = late_pattern(r"[\w.:/-]+|\*|mcp__[\w.*-]+")
Parsed = tuple[Definition | None, list[Diagnostic]]


class AgentDraft:
    """An agent while its fields are read."""

    def __init__(self, fields: ForeignFields) -> None:
        self.fields = fields
        self.names: list[str] | None = None
        self.denied: list[str] = []
        self.readonly = False
        self.enabled = True
        self.has_skill_rules = False
        self.servers: list[str] = []
        """MCP servers whose tools are all given."""
        self.lost_servers: set[str] = set()
        """MCP servers that are denied; `*` for all."""
        self.selectors: list[str] = []
        self.patterns: list[tuple[str, str, tuple[str, ...]]] = []
        """Field, rule and tools of rules about some uses of a tool."""
        self.values: dict[str, Any] = {}

    def deny(self, *tools: str) -> None:
        self.denied += tools

    def give(self, *tools: str) -> None:
        """Add tools to the builtin ones, which an agent without a list has."""
        self.names = [*(BUILTIN_TOOLS if self.names is None else self.names), *tools]


def parse_markdown(
    text: str,
    path: str,
    source: Source,
    tables: ForeignTables,
    read_more: Callable[[AgentDraft], None] = lambda draft: None,
    *,
    has_stem: bool = False,
    is_served: Callable[[str], bool] = lambda word: False,
) -> Parsed:
    """The definition in a Markdown file; see `build_agent`. `has_stem`: the file's name is enough."""
    fields, problems = open_document(text, path, "lines", lambda block: ForeignFields(block, path, tables))
    if fields is None:
        return None, problems
    stem = find_stem(path) if has_stem and not fields.has("name") else ""
    return build_agent(fields, source, read_more, stem=stem, is_served=is_served)


def build_agent(
    fields: ForeignFields,
    source: Source,
    read_more: Callable[[AgentDraft], None],
    *,
    stem: str = "",
    is_served: Callable[[str], bool] = lambda word: False,
) -> Parsed:
    """The definition in a file; `read_more` reads what only this tool has.

    `is_served` returns whether a word of the tool list names tools of a server in a form that `read_more` reads.
    """
    name = _read_stem(fields, stem) if stem else read_name(fields, stem_counts=True)
    described = read_description(fields)
    draft = AgentDraft(fields)
    _read_tools(draft, is_served)
    _read_denied(draft)
    _read_plain(draft)
    read_more(draft)
    _drop_servers(draft)
    if draft.has_skill_rules:
        draft.values["skills"] = False
    model, is_wish = _read_model(fields)
    schema, schema_file = fields.read_schema()
    if name is None or fields.is_refused:
        return None, fields.problems
    names = None if draft.names is None else tuple(dict.fromkeys(draft.names))
    denied = tuple(dict.fromkeys(draft.denied))
    definition = Definition(
        name=name,
        dialect=fields.tables.dialect,
        source=source,
        path=fields.path,
        description=described or name,
        prompt=choose_prompt(fields, name, described),
        readonly=draft.readonly,
        tools=DeclaredTools(names, denied=denied, selectors=tuple(draft.selectors)),
        model=model,
        is_model_wish=is_wish,
        mcp_servers=tuple(dict.fromkeys(draft.servers)),
        output_schema=schema,
        schema_file=schema_file,
        lines=fields.lines,
        **draft.values,
    )
    for field, rule, tools in draft.patterns:
        if find_uses(definition, tools):
            fields.block(
                field, f"{quote(rule, 80)} restricts only some uses of a tool, which retinue cannot tell apart"
            )
    return replace(
        definition,
        enabled=draft.enabled and not fields.is_disabled,
        fields=fields.list_reports(),
        faults=tuple(fields.faults),
    ), fields.problems


def _read_stem(fields: ForeignFields, stem: str) -> str | None:
    if fault := find_fault(stem):
        fields.report(f"the name {quote(stem, 60)} {fault}; the agent is skipped", "", 1, "name")
        return None
    return stem


def list_possible(definition: Definition) -> set[str]:
    """The tools that an agent could get if everything were available."""
    declared = definition.tools
    names = () if declared.names is None else declared.names
    names = (*names, *BUILTIN_TOOLS) if declared.names is None or declared.all_builtins else names
    more = DELEGATION if definition.allowed_subagents else ()
    denied = {word.lower() for word in definition.tools.denied}
    if {"*", "all"} & denied:
        return set()
    lost = WRITERS if definition.readonly else frozenset()
    return {name for name in (*names, *more) if name.lower() not in denied and name not in lost}


def find_uses(definition: Definition, tools: Iterable[str]) -> set[str]:
    return list_possible(definition).intersection(tools)


def split_words(value: Value | None) -> list[str] | None:
    """The words of a list, or of a text with commas that may have parentheses; None for any other value."""
    parts = value.values if isinstance(value, Items) else (value,)
    words: list[str] = []
    for part in parts:
        is_text = isinstance(part, Scalar) and (
            part.is_quoted or not re.fullmatch(r"true|false|[\d.]+", part.text.lower())
        )
        if not isinstance(part, Scalar) or not is_text:
            return None
        words += [word.strip() for word in re.split(r",(?![^(]*\))", part.text) if word.strip()]
    return list(dict.fromkeys(words))


def split_pattern(word: str) -> tuple[str, str]:
    """A tool and the uses of it that a word is about; `*` for all."""
    found = _PATTERN.match(word)
    return (found[1].strip(), found[2].strip() or "*") if found else (word, "*")


def translate(word: str, tables: ForeignTables, *, is_denial: bool = False) -> tuple[str, ...] | None:
    """Our tools for a word of a list; None if the tool is unknown."""
    folded = word.lower()
    if is_denial and folded in tables.denied:
        return tables.denied[folded]
    return tables.tools.get(folded, (folded,) if folded in KNOWN_TOOLS else None)


def find_server(word: str) -> tuple[str, str] | None:
    """The server and tool of `mcp__server__tool`, `server/tool` or `mcp__server`; the tool is `*` for all."""
    if word.startswith("mcp__"):
        server, _, tool = word.removeprefix("mcp__").partition("__")
        return (server, tool or "*") if server else None
    server, slash, tool = word.partition("/")
    return (server, tool or "*") if slash and server else None


def _read_tools(draft: AgentDraft, is_served: Callable[[str], bool]) -> None:
    fields = draft.fields
    value = fields.get("tools")
    if value is None:
        return
    words = split_words(value)
    if isinstance(value, Scalar) and value.is_null:
        draft.names = []
        return fields.approximate("tools", "an empty list: no tools")
    if words is None:
        draft.names = []
        return fields.block_value("tools", "a list of tool names")
    if {"*", "all"} & {word.lower() for word in words}:
        return fields.approximate("tools", "all builtin tools, and none of extensions and MCP servers")
    draft.names, missing, mentioned = [], [], []
    for word in words:
        tool, use = split_pattern(word)
        found = translate(tool, fields.tables)
        if found == ("Agent",):
            draft.names.append("Agent")
            if use != "*":
                draft.values["allowed_subagents"] = tuple(part.strip() for part in use.split(",") if part.strip())
        elif use != "*":
            fields.block("tools", f"{quote(word, 80)} allows only some uses of a tool, which retinue cannot tell apart")
        elif found is None and (served := find_server(word)):
            mentioned.append(served[0])
            draft.servers += [served[0]] if "*" in served[1] else []
            draft.names += [] if "*" in served[1] else [word.replace("/", ":", 1)]
        elif found:
            draft.names += found
        elif "(" in word:
            fields.block("tools", f"{quote(word, 80)} is not the name of a tool")
        elif not is_served(word):
            missing.append(word)
    draft.servers += mentioned if draft.servers else []
    if missing:
        fields.approximate("tools", f"not given, since retinue has no such tools: {', '.join(missing)}")


def _read_denied(draft: AgentDraft) -> None:
    fields = draft.fields
    value = fields.get("disallowed_tools")
    if value is None or (isinstance(value, Scalar) and value.is_null):
        return
    words = split_words(value)
    if words is None:
        return fields.block_value("disallowed_tools", "a list of tool names")
    for word in words:
        deny_word(draft, "disallowed_tools", word)


def deny_word(draft: AgentDraft, field: str, word: str) -> None:
    """Deny what a word of a deny-list means, or remember it as a rule about some uses of a tool."""
    tool, use = split_pattern(word)
    tables = draft.fields.tables
    found = translate(tool, tables, is_denial=True)
    if tool.lower() == "skill":
        draft.values["skills"] = False
        draft.has_skill_rules |= use != "*"
    elif not _TOOL_NAME.fullmatch(tool) or (use != "*" and find_server(tool)):
        draft.fields.block(field, f"{quote(word, 80)} is not the name of a tool")
    elif use != "*":
        draft.patterns.append((field, word, found or (tool,)))
    elif found is not None:
        draft.deny(*found)
    elif served := find_server(word):
        deny_server(draft, word, *served)
    else:
        meant = find_close(tool.lower(), tables.tools, 0.8)
        draft.deny(word, *(tables.tools[meant] if meant else ()))
        how = f"taken as {meant}" if meant else "retinue has no such tool"
        draft.fields.approximate(field, f"{quote(word, 60)}: {how}")


def deny_server(draft: AgentDraft, word: str, server: str, tool: str) -> None:
    """Take away a tool of an MCP server, or all its tools."""
    draft.deny(word, f"{server}:{tool}", f"mcp__{server}__{tool}")
    if "*" in server or "*" in tool:
        draft.lost_servers.add("*" if "*" in server else server)


def _drop_servers(draft: AgentDraft) -> None:
    """Take away the tools of the servers that are denied as a whole."""
    lost = draft.lost_servers
    draft.servers = [] if "*" in lost else [name for name in draft.servers if name not in lost]
    draft.selectors = [] if "*" in lost else draft.selectors
    draft.names = None if draft.names is None else drop_served(draft.names, lost)


def check_servers(draft: AgentDraft, field: str) -> None:
    """Disable an agent that limits the tools of a server, if it gets tools of servers."""
    value = draft.fields.get(field)
    servers = value.values if isinstance(value, Items) else (value,)
    names = [word for word in draft.names or () if find_server(word.replace(":", "/", 1))]
    if not (draft.servers or draft.selectors or names):
        return
    tables = [table for server in servers if isinstance(server, YamlTable) for table in server.values.values()]
    keys = [key for table in tables if isinstance(table, YamlTable) for key in table.values]
    if limit := next((key for key in keys if _SERVER_LIMIT.search(fold_key(key))), None):
        draft.fields.block(field, f"{quote(limit, 60)} limits the tools of a server, which cannot be expressed")


def drop_served(names: Iterable[str], servers: Collection[str]) -> list[str]:
    """The names that are not tools of these MCP servers; `*` means all servers."""
    found: list[str] = []
    for name in names:
        served = find_server(name.replace(":", "/", 1))
        if served is None or not {served[0], "*"} & set(servers):
            found.append(name)
    return found


def _read_plain(draft: AgentDraft) -> None:
    """Fields that mean the same here."""
    fields, values = draft.fields, draft.values
    draft.readonly = fields.read_flag("readonly")
    draft.enabled = not fields.read_flag("disabled")
    if color := fields.read_text("color"):
        values["color"] = color
    if fields.has("max_turns"):
        values["max_turns"] = fields.read_count("max_turns", least=1)
    if fields.has("thinking"):
        values["thinking"] = _read_thinking(fields)
    if fields.has("memory"):
        values["memory"] = fields.read_choice("memory", ("user", "project", "local"))
    if fields.has("isolation") and fields.read_mode("isolation", ("worktree",)):
        values["isolation"] = "worktree"
    skills = fields.get("skills")
    if skills is not None and not (isinstance(skills, Scalar) and skills.is_null):
        values["skills"] = fields.read_selection("skills")
    if shown := fields.read_text("display_name"):
        values["display_name"] = shown


def _read_thinking(fields: ForeignFields) -> str | None:
    value = fields.read_text("thinking")
    if value in ("none", "off"):
        return "off"
    if value in ("minimal", "low", "medium", "high", "xhigh", "max"):
        return value
    fields.drop("thinking", f"unknown level {quote(value or '', 40)}; the caller's is used")
    return None


def _read_model(fields: ForeignFields) -> tuple[str | None, bool]:
    """The model, and whether it is only wished for. A name without a provider may mean a model that nobody has here."""
    value = fields.get("model")
    first = value.values[0] if isinstance(value, Items) and value.values else value
    if first is None or not isinstance(first, Scalar):
        if value is not None:
            fields.drop("model", "not a name; the caller's model is used")
        return None, False
    text = first.text.strip()
    if first.is_null or text in ("", "inherit"):
        return None, False
    if first is not value:
        fields.approximate("model", "the first of several models counts")
    meant = fields.tables.models.get(text.lower(), text)
    if not meant:
        fields.approximate("model", f"{quote(text, 60)} is an alias of another tool; the caller's model is used")
        return None, False
    if "/" in meant:
        return meant, False
    fields.approximate("model", "searched among the models of the main model's provider; else the caller's is used")
    return meant, True


def read_tables(value: Value | None) -> list[str] | None:
    """The keys of an object, or the names in a list of names and objects; None for any other value."""
    if isinstance(value, YamlTable):
        return list(value.values)
    if not isinstance(value, Items):
        return None
    names: list[str] = []
    for item in value.values:
        if isinstance(item, YamlTable):
            names += item.values
        elif isinstance(item, Scalar):
            names.append(item.text)
        else:
            return None
    return names


def find_stem(path: str) -> str:
    """The name of an agent from its file: without `.md`, and without `.agent` before it."""
    return PurePath(path).stem.removesuffix(".agent")

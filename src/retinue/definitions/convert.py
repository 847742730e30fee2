"""Write an agent in the dialect of another tool, with a report. Pure.

A restriction that the target cannot hold stops the conversion.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import fields as list_fields

from retinue.core.definition import FOREIGN, Definition, FieldReport, FieldStatus
from retinue.core.errors import RetinueError, quote
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.definitions.dialects import claude, gemini, opencode
from retinue.definitions.edit import FieldValue, render_definition
from retinue.definitions.foreign import DELEGATION, WEB, find_server, list_possible

Target: TypeAlias = Literal["pi", "claude", "codex", "opencode", "cursor", "copilot", "gemini"]
TARGETS: tuple[Target, ...] = get_args(Target)
_RESTRICTING = (
    *("enabled", "readonly", "tools", "disallowed_tools", "allowed_subagents", "extensions", "exclude_extensions"),
    *("hooks", "max_turns", "max_tokens_total", "max_cost", "max_seconds", "isolated", "verify"),
)
_NOT_FIELDS = (
    *("name", "dialect", "source", "path", "description", "prompt", "tools", "is_model_wish", "schema_file"),
    *("shadows", "lines", "fields", "faults"),
)
"""Attributes of a definition that are not fields of its file, or are read apart."""
_NOT_IN_PI = ("hooks", "mcp_servers", "completion")
_CLAUDE = {ours[0]: name for name, ours in claude.TOOLS.items() if len(ours) == 1 and name not in ("task", "multiedit")}
_SPELLED = {
    "webfetch": "WebFetch",
    "websearch": "WebSearch",
    "todowrite": "TodoWrite",
    "taskcreate": "TodoWrite",
    "taskupdate": "TodoWrite",
    "ls": "LS",
    "lsp": "LSP",
}
_COPILOT = {
    "read": ("read",),
    "edit": ("edit", "write"),
    "search": ("grep", "find", "ls"),
    "execute": ("bash",),
    "web": ("web_search", "fetch_content"),
    "todo": ("todo_write",),
    "agent": ("Agent",),
}
"""Copilot's names for groups of our tools."""
_GEMINI = {ours[0]: name for name, ours in reversed(gemini.TOOLS.items()) if ours}
_WRITING = frozenset(("edit", "write", "bash"))


class Conversion(Struct, frozen=True):
    text: str
    suffix: str
    reports: tuple[FieldReport, ...]


class _Wanted:
    """The fields that an agent has, and what became of each."""

    def __init__(self, definition: Definition, target: Target) -> None:
        self.definition = definition
        self.target = target
        self.values = _list_values(definition)
        self.reports: list[FieldReport] = []

    def take(self, field: str, status: FieldStatus = "kept", note: str = "") -> Any:
        """The value of a field that the target can hold; None if the agent does not have it."""
        value = self.values.pop(field, None)
        if value is not None:
            self.reports.append(FieldReport(field, status, note))
        return value

    def refuse(self, field: str, why: str) -> None:
        name = quote(self.definition.name)
        raise RetinueError(f"{name} cannot be converted to {self.target}: {field}: {why}")

    def close(self) -> tuple[FieldReport, ...]:
        for field in self.values:
            if field in _RESTRICTING:
                self.refuse(field, f"{self.target} has no such restriction")
            self.reports.append(FieldReport(field, "ignored", f"{self.target} has no such field"))
        return tuple(self.reports)


def _list_values(definition: Definition) -> dict[str, Any]:
    """What an agent's file says, without what is at its default."""
    default = Definition(name="", dialect="pi", source="user", path="")
    found: dict[str, Any] = {"name": definition.name, "description": definition.description}
    declared, aliases = definition.tools, definition.tools.aliases
    if declared.names is not None or declared.all_builtins or declared.selectors:
        names = [aliases.get(name, name) for name in declared.names or ()]
        found["tools"] = [*(BUILTIN_TOOLS if declared.all_builtins else ()), *names, *declared.selectors]
    if declared.denied:
        found["disallowed_tools"] = [aliases.get(name, name) for name in declared.denied]
    for field in (each.name for each in list_fields(Definition)):
        if field not in _NOT_FIELDS and getattr(definition, field) != getattr(default, field):
            found[field] = getattr(definition, field)
    return found


def convert_agent(definition: Definition, target: Target) -> Conversion:
    """The text of the agent's file in another dialect. Raises RetinueError, naming the field, if that loses a limit."""
    if definition.faults:
        raise RetinueError(f"{quote(definition.name)} cannot be converted: {definition.faults[0]}")
    wanted = _Wanted(definition, target)
    if target != "pi" and definition.max_turns == 0:
        wanted.take("max_turns", "ignored", "no limit")
    text = _RENDERERS[target](wanted)
    return Conversion(text, {"codex": ".toml", "copilot": ".agent.md"}.get(target, ".md"), wanted.close())


def _take_allowed(wanted: _Wanted) -> tuple[str, ...] | None:
    """The agents that the agent may start; if there are none, the tool for it is denied."""
    is_none = wanted.values.get("allowed_subagents") == ()
    allowed: tuple[str, ...] | None = wanted.take("allowed_subagents", *(("approximated", "denied") if is_none else ()))
    return allowed


def _is_closed(definition: Definition) -> bool:
    """Whether the agent gets no tools of extensions and servers but those that its file lists."""
    is_listed = definition.dialect in FOREIGN and definition.tools.names is not None
    return is_listed or definition.extensions is False or bool(definition.isolated)


def _list_whole(definition: Definition) -> list[str]:
    """The servers whose tools are all given; of a server with a listed tool only that one is."""
    named = {found[0] for name in definition.tools.names or () if (found := find_server(name.replace(":", "/", 1)))}
    return [name for name in definition.mcp_servers if name not in named]


def _render_pi(wanted: _Wanted) -> str:
    definition = wanted.definition
    fields: dict[str, FieldValue | None] = {}
    for field in [name for name in wanted.values if name not in _NOT_IN_PI]:
        note = (
            "the original only prefers this model; the new file requires it"
            if field == "model" and definition.is_model_wish
            else ""
        )
        value = wanted.take(field, "approximated" if note else "kept", note)
        fields[field] = list(value) if isinstance(value, tuple) else value
    for field in ("tools", "allowed_subagents", "fallback_models"):
        fields[field] = "none" if fields.get(field) == [] else fields.get(field)
    if definition.output_schema is not None:
        fields["output_schema"] = json.dumps(definition.output_schema)
    has_served = any(":" in word or word.startswith("mcp__") for word in definition.tools.names or ())
    if definition.dialect != "pi" and not has_served and not definition.tools.selectors:
        # Files of other tools give no tools of extensions and servers; a pi file would.
        fields["extensions"] = False
    return render_definition(fields, definition.prompt)


def _render_claude(wanted: _Wanted) -> str:
    definition = wanted.definition
    names, denied = _list_tools(wanted)
    fields: dict[str, FieldValue | None] = {"name": wanted.take("name"), "description": wanted.take("description")}
    allowed = _take_allowed(wanted)
    is_open = "tools" not in wanted.values and names is None
    if names is None and allowed:
        names = list(BUILTIN_TOOLS)
    if names is not None:
        shown, lost = _name_for_claude([name for name in names if name not in DELEGATION])
        more = [f"Agent({', '.join(allowed)})"] if allowed else ["Agent"] if "Agent" in names else []
        wanted.take("mcp_servers")
        servers = [f"mcp__{server}" for server in _list_whole(definition)]
        note = f"not given, since Claude Code has no such tools: {', '.join(lost)}" if lost else ""
        wanted.take("tools", "approximated" if note else "kept", note)
        fields["tools"] = [*shown, *more, *servers]
    elif definition.mcp_servers:
        fields["mcpServers"] = list(wanted.take("mcp_servers"))
    if not is_open:
        # A list of tools has none of extensions and servers but those that it names.
        for field in ("extensions", "exclude_extensions", "isolated"):
            wanted.take(field)
    shown, lost = _name_for_claude(denied)
    wanted.take("disallowed_tools")
    if wanted.take("readonly"):
        fields["permissionMode"] = "plan"
        shown += ["Write", "Edit", "NotebookEdit"]
    if wanted.values.get("skills") is False:
        wanted.take("skills")
        shown.append("Skill")
    if allowed == ():
        shown.append("Agent")
    fields["disallowedTools"] = list(dict.fromkeys((*shown, *lost))) or None
    fields["maxTurns"] = wanted.take("max_turns")
    fields["model"] = _take_model(wanted, "anthropic")
    if wanted.values.get("thinking") in ("low", "medium", "high", "xhigh", "max"):
        fields["effort"] = wanted.take("thinking")
    if isinstance(wanted.values.get("skills"), tuple):
        fields["skills"] = list(wanted.take("skills"))
    if wanted.values.get("isolation") == "worktree":
        fields["isolation"] = wanted.take("isolation")
    fields |= {"memory": wanted.take("memory"), "color": wanted.take("color")}
    return render_definition(fields, definition.prompt)


def _take_all_tools(wanted: _Wanted, tool: str) -> bool:
    """Take the tool lists for a tool that gives every agent all tools; returns whether the agent is read-only."""
    definition, has = wanted.definition, list_possible(wanted.definition)
    readonly = bool(wanted.take("readonly"))
    given = {"read", "bash", "grep", "find", "ls", *(() if readonly else ("edit", "write"))}
    if missing := sorted(given - has):
        field = "tools" if "tools" in wanted.values else "disallowed_tools"
        wanted.refuse(field, f"{tool} gives every agent {', '.join(missing)}")
    if _is_closed(definition):
        field = next(name for name in ("extensions", "isolated", "tools") if name in wanted.values)
        wanted.refuse(field, f"{tool} gives every agent the tools of its servers")
    if denied := [word for word in definition.tools.denied if ":" in word or word.startswith("mcp__")]:
        wanted.refuse("disallowed_tools", f"{tool} cannot deny {denied[0]}")
    for field in ("tools", "disallowed_tools"):
        wanted.take(
            field, "approximated", f"{tool} has no lists of tools; the agent gets no more tools than it has here"
        )
    wanted.take("mcp_servers", "approximated", f"servers are configured in {tool}")
    return readonly


def _render_codex(wanted: _Wanted) -> str:
    definition = wanted.definition
    has = list_possible(definition)
    is_limited = definition.tools.names is not None or bool(set(definition.tools.denied) & {"web_search", *WEB})
    readonly = _take_all_tools(wanted, "Codex")
    fields = {
        "name": wanted.take("name"),
        "description": wanted.take("description"),
        "model": _take_model(wanted, "openai"),
        "model_reasoning_effort": None,
        "sandbox_mode": "read-only" if readonly else None,
        "web_search": "disabled" if is_limited and "web_search" not in has else None,
    }
    if wanted.values.get("thinking") not in (None, "max"):
        level = wanted.take("thinking")
        fields["model_reasoning_effort"] = "none" if level == "off" else level
    lines = [f"{key} = {_quote_toml(str(value))}" for key, value in fields.items() if value is not None]
    return "\n".join((*lines, f"developer_instructions = {_quote_toml(definition.prompt.strip())}", ""))


def _quote_toml(text: str) -> str:
    """A TOML string; one of several lines stays readable."""
    quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return '"""\n' + quoted[1:-1].replace("\\n", "\n") + '\n"""' if "\n" in text and "\\\\n" not in quoted else quoted


def _render_opencode(wanted: _Wanted) -> str:
    definition = wanted.definition
    has = list_possible(definition)
    forgone = has & _WRITING if wanted.take("readonly", "approximated", "edits and commands are denied") else set()
    has -= forgone
    tables = {key: tools for key, tools in opencode.PERMISSIONS.items() if tools}
    given = [
        key for key, tools in tables.items() if set(tools) <= has or (key == "webfetch" and "fetch_content" in has)
    ]
    is_lossy = bool(forgone) or any(set(tables[key]) & has for key in tables if key not in given)
    if definition.tools.names is not None or _is_closed(definition):
        # OpenCode gives every agent the tools of its servers, unless everything is denied first.
        permission = {"*": "deny", **dict.fromkeys((*given, "skill", "doom_loop"), "allow")}
        selectors = [*definition.mcp_servers, *definition.tools.selectors]
        served = [name for name in definition.tools.names or () if ":" in name or name.startswith("mcp__")]
        lost = ", ".join((*selectors, *served))
    else:
        # An agent without a list has no tools of the web, and other programs need not know that.
        free = {"webfetch", "websearch", "lsp", "todowrite", "task", "question"}
        free -= {"task"} if definition.allowed_subagents == () else set()
        asked = {word.lower() for word in definition.tools.denied}
        permission = {
            key: "deny"
            for key, tools in tables.items()
            if key not in given and (key not in free or asked & {"*", "all", *(tool.lower() for tool in tools)})
        }
        if denied := [word for word in definition.tools.denied if ":" in word or word.startswith("mcp__")]:
            wanted.refuse("disallowed_tools", f"OpenCode has another name for {denied[0]}")
        lost = ""
    note = "denied by `permission`; `edit` covers write" if is_lossy else ""
    note = f"not given: {lost}, since OpenCode has other names for tools of servers" if lost else note
    wanted.take("tools", "approximated" if note else "kept", note)
    wanted.take("disallowed_tools", "approximated" if note else "kept", note)
    wanted.take("mcp_servers", "ignored", "servers are configured in OpenCode")
    if wanted.values.get("allowed_subagents"):
        wanted.refuse("allowed_subagents", "OpenCode limits this by patterns")
    _take_allowed(wanted)
    if wanted.values.get("skills") is False:
        wanted.take("skills")
        permission["skill"] = "deny"
    for field in ("extensions", "isolated"):
        if field == "isolated" or definition.extensions is False:
            wanted.take(field, "approximated", "denied by `permission`")
    wanted.take("name")
    fields: dict[str, FieldValue | None] = {"description": wanted.take("description"), "mode": "subagent"}
    if "/" in str(wanted.values.get("model", "")):
        fields["model"] = wanted.take("model")
    fields |= {
        "steps": wanted.take("max_turns"),
        "reasoningEffort": wanted.take("thinking"),
        "color": wanted.take("color"),
    }
    if wanted.take("enabled") is False:
        fields["disable"] = True
    text = render_definition(fields, definition.prompt)
    rules = "".join(
        f"  {json.dumps(key) if key == '*' else key}: {value}\n" for key, value in sorted(permission.items())
    )
    return text.replace("\n---\n", f"\npermission:\n{rules}---\n", 1) if rules else text


def _render_cursor(wanted: _Wanted) -> str:
    readonly = _take_all_tools(wanted, "Cursor")
    fields: dict[str, FieldValue | None] = {
        "name": wanted.take("name"),
        "description": wanted.take("description"),
        "model": _take_model(wanted, ""),
        "readonly": readonly or None,
        "color": wanted.take("color"),
    }
    return render_definition(fields, wanted.definition.prompt)


def _take_listed(
    wanted: _Wanted, names: Mapping[str, tuple[str, ...]], served: Callable[[str, str], str]
) -> list[str] | None:
    """The tool list for a tool that has no other limits; None for an agent without limits."""
    definition = wanted.definition
    possible = list_possible(definition)
    has = possible - (_WRITING if definition.readonly else frozenset())
    is_open = definition.tools.names is None and not definition.tools.denied and not definition.readonly
    if is_open and not _is_closed(definition) and definition.allowed_subagents is None:
        return None
    shown = [name for name, tools in names.items() if set(tools) <= has]
    covered = {tool for name in shown for tool in names[name]} | set(DELEGATION[1:])
    named = [found for name in definition.tools.names or () if (found := find_server(name.replace(":", "/", 1)))]
    parts = [*named, *((server, "*") for server in _list_whole(definition))]
    if parts and any(find_server(word.replace(":", "/", 1)) for word in definition.tools.denied):
        wanted.refuse("disallowed_tools", f"{wanted.target} cannot deny single tools of servers")
    words = [word for server, tool in parts if (word := served(server, tool))]
    own = sorted(name for name in possible - (covered & has) if not find_server(name.replace(":", "/", 1)))
    lost = [
        *own,
        *definition.tools.selectors,
        *(f"{server}:{tool}" for server, tool in parts if not served(server, tool)),
    ]
    note = f"not given: {', '.join(lost)}" if lost else ""
    status: FieldStatus = "approximated" if note else "kept"
    for field in ("tools", "disallowed_tools", "extensions", "exclude_extensions", "isolated", "mcp_servers"):
        wanted.take(field, status, note)
    wanted.take("readonly", "approximated", "tools that write and commands are not given")
    return [*shown, *words]


def _render_copilot(wanted: _Wanted) -> str:
    definition = wanted.definition
    fields: dict[str, FieldValue | None] = {
        "name": wanted.take("display_name"),
        "description": wanted.take("description"),
        "tools": _take_listed(wanted, _COPILOT, lambda server, tool: f"{server}/{tool}"),
        "model": _take_model(wanted, ""),
        "agents": list(_take_allowed(wanted) or ()) or None,
    }
    wanted.take("name")
    return render_definition(fields, definition.prompt)


def _render_gemini(wanted: _Wanted) -> str:
    definition = wanted.definition
    wanted.take("allowed_subagents", "approximated", "agents of Gemini CLI cannot start other agents")
    seconds = wanted.take("max_seconds")
    fields: dict[str, FieldValue | None] = {
        "name": wanted.take("name"),
        "description": wanted.take("description"),
        "display_name": wanted.take("display_name"),
        "kind": "local",
        "tools": _take_listed(
            wanted,
            {name: (tool,) for tool, name in _GEMINI.items()},
            lambda server, tool: f"mcp_{server}_*" if tool == "*" else "",
        ),
        "model": _take_model(wanted, "google"),
        "max_turns": wanted.take("max_turns"),
        "timeout_mins": None if seconds is None else seconds / 60,
    }
    return render_definition(fields, definition.prompt)


def _list_tools(wanted: _Wanted) -> tuple[list[str] | None, list[str]]:
    """The listed and the denied tools; a selector of extensions cannot be held."""
    if selectors := wanted.definition.tools.selectors:
        wanted.refuse("tools", f"{quote(selectors[0])} cannot be written for {wanted.target}")
    names, denied = wanted.values.get("tools"), list(wanted.values.get("disallowed_tools", ()))
    if {"*", "all"} & {word.lower() for word in denied}:
        return [], []
    return names, denied


def _name_for_claude(names: list[str]) -> tuple[list[str], list[str]]:
    """Claude Code's names of our tools, and those that have none."""
    shown: list[str] = []
    lost: list[str] = []
    for name in names:
        if name.startswith("mcp__"):
            shown.append(name)
        elif ":" in name:
            shown.append("mcp__" + name.replace(":", "__", 1))
        elif name in _CLAUDE:
            shown.append(_SPELLED.get(_CLAUDE[name], _CLAUDE[name].capitalize()))
        elif name == "Agent" or name not in DELEGATION:
            (shown if name == "Agent" else lost).append(name)
    return list(dict.fromkeys(shown)), lost


def _take_model(wanted: _Wanted, provider: str) -> str | None:
    model = wanted.values.get("model")
    if model is None or ("/" in model and not (provider and model.startswith(f"{provider}/"))):
        return None
    note = "" if "/" not in model else "without the provider"
    wanted.take("model", "approximated" if note else "kept", note)
    return str(model).removeprefix(f"{provider}/")


_RENDERERS: Mapping[Target, Callable[[_Wanted], str]] = {
    "pi": _render_pi,
    "claude": _render_claude,
    "codex": _render_codex,
    "opencode": _render_opencode,
    "cursor": _render_cursor,
    "copilot": _render_copilot,
    "gemini": _render_gemini,
}

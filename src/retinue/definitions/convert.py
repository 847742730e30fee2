"""Write an agent in the dialect of another tool, with a report. Pure.

A restriction that the target cannot hold stops the conversion.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from retinue.core.definition import Definition, FieldReport, FieldStatus
from retinue.core.errors import RetinueError, quote
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.definitions.dialects import claude, opencode
from retinue.definitions.edit import FieldValue, render_definition
from retinue.definitions.foreign import DELEGATION, list_possible

Target: TypeAlias = Literal["pi", "claude", "codex", "opencode"]
TARGETS: tuple[Target, ...] = get_args(Target)
_RESTRICTING = (
    *("enabled", "readonly", "tools", "disallowed_tools", "allowed_subagents", "extensions", "exclude_extensions"),
    *("mcp_servers", "hooks", "max_turns", "max_tokens_total", "max_cost", "max_seconds", "isolated"),
    "verify",
)
_OTHER = (
    *("display_name", "model", "thinking", "skills", "memory", "color", "isolation", "prompt_mode", "inherit_context"),
    *("persist_session", "session_dir", "output_transcript", "runner"),
)
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
    for field in (*_RESTRICTING, *_OTHER):
        if hasattr(definition, field) and field != "tools" and getattr(definition, field) != getattr(default, field):
            found[field] = getattr(definition, field)
    if found.get("max_turns") == 0:
        del found["max_turns"]
    return found


def convert_agent(definition: Definition, target: Target) -> Conversion:
    """The text of the agent's file in another dialect. Raises RetinueError, naming the field, if that loses a limit."""
    if definition.faults:
        raise RetinueError(f"{quote(definition.name)} cannot be converted: {definition.faults[0]}")
    wanted = _Wanted(definition, target)
    text = _RENDERERS[target](wanted)
    return Conversion(text, ".toml" if target == "codex" else ".md", wanted.close())


def _render_pi(wanted: _Wanted) -> str:
    definition = wanted.definition
    if definition.mcp_servers:
        wanted.refuse("mcp_servers", "a list of whole servers has no form in pi files; list their tools")
    fields: dict[str, FieldValue | None] = {}
    for field in ("name", "description", *_RESTRICTING, *_OTHER):
        if field in wanted.values and field != "hooks":
            value = wanted.take(field)
            fields[field] = list(value) if isinstance(value, tuple) else value
    if fields.get("tools") == []:
        fields["tools"] = "none"
    has_served = any(":" in word or word.startswith("mcp__") for word in definition.tools.names or ())
    if definition.dialect != "pi" and not has_served and not definition.tools.selectors:
        # Files of other tools give no tools of extensions and servers; a pi file would.
        fields["extensions"] = False
    return render_definition(fields, definition.prompt)


def _render_claude(wanted: _Wanted) -> str:
    definition = wanted.definition
    names, denied = _list_tools(wanted)
    fields: dict[str, FieldValue | None] = {"name": wanted.take("name"), "description": wanted.take("description")}
    allowed = wanted.take("allowed_subagents")
    is_open = "tools" not in wanted.values and names is None
    if names is None and allowed:
        names = list(BUILTIN_TOOLS)
    if names is not None:
        shown, lost = _name_for_claude([name for name in names if name not in DELEGATION])
        more = [f"Agent({', '.join(allowed)})"] if allowed else ["Agent"] if "Agent" in names else []
        servers = [f"mcp__{server}" for server in wanted.take("mcp_servers") or ()]
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


def _render_codex(wanted: _Wanted) -> str:
    definition = wanted.definition
    has = list_possible(definition)
    readonly = wanted.take("readonly")
    given = {"read", "bash", "grep", "find", "ls", *(() if readonly else ("edit", "write"))}
    if missing := sorted(given - has):
        field = "tools" if "tools" in wanted.values else "disallowed_tools"
        wanted.refuse(field, f"Codex gives every agent {', '.join(missing)}")
    for field in ("tools", "disallowed_tools"):
        wanted.take(field, "approximated", "Codex has no lists of tools; what it gives is not more")
    for field in ("extensions", "exclude_extensions", "mcp_servers"):
        if field in wanted.values and wanted.values[field] not in ((), True):
            wanted.take(field, "approximated", "servers and extensions are configured in Codex")
    fields = {
        "name": wanted.take("name"),
        "description": wanted.take("description"),
        "model": _take_model(wanted, "openai"),
        "model_reasoning_effort": None,
        "sandbox_mode": "read-only" if readonly else None,
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
    readonly = wanted.values.get("readonly")
    wanted.take("readonly", "approximated", "edits and commands are denied")
    lost = {"edit", "write", "bash"} if readonly else set()
    # `edit` covers both of our tools.
    lost |= {"edit"} if {"edit", "write"} - has and {"edit", "write"} & has else set()
    permission = {
        key: "deny" for key, tools in opencode.PERMISSIONS.items() if tools and (set(tools) - has or lost & set(tools))
    }
    denied = [word for word in definition.tools.denied if ":" in word or word.startswith("mcp__")]
    if denied or definition.mcp_servers or definition.tools.selectors:
        wanted.refuse(
            "mcp_servers" if definition.mcp_servers else "tools", "OpenCode names tools of MCP servers otherwise"
        )
    names = definition.tools.names
    note = "denied by `permission`; `edit` covers write" if "edit" in permission else ""
    wanted.take("tools", "approximated" if note else "kept", note)
    wanted.take("disallowed_tools", "approximated" if note else "kept", note)
    if wanted.values.get("allowed_subagents"):
        wanted.refuse("allowed_subagents", "OpenCode limits this by patterns")
    wanted.take("allowed_subagents")
    if definition.dialect == "pi" and names is None:
        permission = {key: value for key, value in permission.items() if key not in ("webfetch", "websearch", "lsp")}
    if wanted.values.get("skills") is False:
        wanted.take("skills")
        permission["skill"] = "deny"
    for field in ("extensions", "exclude_extensions", "isolated"):
        wanted.take(field, "approximated", "extensions of retinue do not exist in OpenCode")
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
    rules = "".join(f"  {key}: {value}\n" for key, value in sorted(permission.items()))
    return text.replace("\n---\n", f"\npermission:\n{rules}---\n", 1) if rules else text


def _list_tools(wanted: _Wanted) -> tuple[list[str] | None, list[str]]:
    """The listed and the denied tools; a selector of extensions cannot be held."""
    if selectors := wanted.definition.tools.selectors:
        wanted.refuse("tools", f"{quote(selectors[0])} has no form in {wanted.target}")
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
    if model is None or ("/" in model and not model.startswith(f"{provider}/")):
        return None
    note = "" if "/" not in model else "without the provider"
    wanted.take("model", "approximated" if note else "kept", note)
    return str(model).removeprefix(f"{provider}/")


_RENDERERS: Mapping[Target, Callable[[_Wanted], str]] = {
    "pi": _render_pi,
    "claude": _render_claude,
    "codex": _render_codex,
    "opencode": _render_opencode,
}

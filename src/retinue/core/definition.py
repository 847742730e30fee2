"""A Definition: one kind of agent, frozen, read from one Markdown file.

All dialects produce it, so this file must not depend on a dialect. A definition *asks for* rights; what a run gets is
decided elsewhere and is never more.
"""

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

Foreign: TypeAlias = Literal["claude", "codex", "opencode", "cursor", "copilot", "gemini"]
"""Dialects of other tools, in order of precedence."""
Dialect: TypeAlias = Literal["pi", "codingcode", "sticky", "claude", "codex", "opencode", "cursor", "copilot", "gemini"]
FOREIGN: tuple[Foreign, ...] = get_args(Foreign)
FieldStatus: TypeAlias = Literal["kept", "approximated", "ignored"]
Source: TypeAlias = Literal["builtin", "user", "project"]
Selection: TypeAlias = bool | tuple[str, ...]
"""True: all; False: none; otherwise exactly these names."""
Runner: TypeAlias = Literal["inprocess", "durable", "process", "pi", "cluster"]
"""Where a run executes: this process, this process with a durable record, its own process, a pi process, another
machine."""
ContextMode: TypeAlias = Literal["none", "summary", "fork"]
"""What a run gets of its parent's conversation: nothing, its text, or the same request with all messages and tools."""
REMOTE: Runner = "cluster"
"""Executes on another machine and survives the end of this process."""


class DeclaredTools(Struct, frozen=True):
    """The tools a file asks for, before any restriction."""

    names: tuple[str, ...] | None = None
    """Exactly these tools (an empty list means none); None if the file does not say."""
    all_builtins: bool = False
    """`*` or `all` was listed: every builtin tool in addition to `names`."""
    inherits: bool = False
    """Start from the parent's active tools instead of a list."""
    denied: tuple[str, ...] = ()
    """Never given, whatever else asks for them."""
    selectors: tuple[str, ...] = ()
    """`ext:name` and `ext:name/tool`. If there is any, extension tools become an allow-list."""
    aliases: dict[str, str] = {}
    """Name that the model sees → name of the tool, for files that use their own names."""


class FieldReport(Struct, frozen=True):
    """What became of one field of an agent file."""

    field: str
    """Its name in the file."""
    status: FieldStatus
    note: str = ""
    """How it is approximated, or why it is ignored."""
    line: int | None = None


class Definition(Struct, frozen=True, kw_only=True):
    """One kind of agent."""

    name: str
    dialect: Dialect
    source: Source
    path: str
    """The Markdown file; for a builtin agent, the packaged file."""
    description: str = ""
    display_name: str = ""
    prompt: str = ""
    """The body of the file: instructions for the model."""
    prompt_mode: Literal["replace", "append"] = "replace"
    """Replace the parent's system prompt, or append to it."""
    enabled: bool = True
    readonly: bool = False
    tools: DeclaredTools = DeclaredTools()
    allowed_subagents: tuple[str, ...] | None = None
    """Agents it may delegate to. None: none, unless `tools` lists a delegation tool."""
    extensions: Selection = True
    exclude_extensions: tuple[str, ...] = ()
    mcp_servers: tuple[str, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    skills: Selection = True
    memory: Literal["user", "project", "local"] | None = None
    model: str | None = None
    is_model_wish: bool = False
    """If the model is not available, use the parent's without a warning."""
    thinking: str | None = None
    max_turns: int | None = None
    """None: not set. 0: no limit, and the caller cannot set one."""
    max_tokens_total: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    fallback_models: tuple[str, ...] | None = None
    """Models to ask while a usage limit of its own lasts; None for those of the settings."""
    isolated: bool | None = None
    """No extensions and no skills. For this and the following fields: None leaves it to the caller, a value is
    final."""
    inherit_context: bool | None = None
    context: ContextMode | None = None
    """What it gets of the caller's conversation; wins over `inherit_context`."""
    isolation: Literal["worktree", "off"] | None = None
    persist_session: bool | None = None
    session_dir: str | None = None
    output_transcript: bool | None = None
    runner: Runner | None = None
    completion: Literal["text", "finalize"] = "text"
    """A run ends successfully with its last text, or with a call of `subagent_finalize`."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema that its result must match."""
    schema_file: str = ""
    """The file with the schema, as written."""
    verify: tuple[str, ...] = ()
    """Shell commands that must succeed before a run is done."""
    color: str | None = None
    shadows: tuple[str, ...] = ()
    """Files with the same agent name that this file overrides, nearest first."""
    lines: dict[str, int] = {}
    """The line of each field in the file, for messages."""
    fields: tuple[FieldReport, ...] = ()
    """What became of each field, in the order of the file."""
    faults: tuple[str, ...] = ()
    """Restrictions that cannot be expressed; with any, the agent is disabled."""

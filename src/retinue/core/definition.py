"""A Definition: what one kind of agent is, frozen, read from one markdown file.

Every dialect ends here, so nothing in this file may name one beyond saying where a definition comes from. Rights in it
are what the file *asks for*; what a run gets is decided elsewhere and is never more.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Dialect: TypeAlias = Literal["pi", "codingcode", "sticky"]
Source: TypeAlias = Literal["builtin", "user", "project"]
Selection: TypeAlias = bool | tuple[str, ...]
"""All of them, none of them, or exactly these."""
Runner: TypeAlias = Literal["inprocess", "durable", "process", "pi", "cluster"]
"""Where a run works: in this process, there with a record, in one of its own, as a pi, on another machine."""
REMOTE: Runner = "cluster"
"""Works on another machine, and outlives this process."""


class DeclaredTools(Struct, frozen=True):
    """The tools a file asks for, before anything cuts them down."""

    names: tuple[str, ...] | None = None
    """Exactly these (an empty list is no tools); None when the file does not say."""
    all_builtins: bool = False
    """`*` or `all` was listed: every builtin tool beside `names`."""
    inherits: bool = False
    """Begin with the parent's active tools instead of a list of its own."""
    denied: tuple[str, ...] = ()
    """Never these, whatever else says so."""
    selectors: tuple[str, ...] = ()
    """`ext:name` and `ext:name/tool`: any one turns extension tools into an allow-list."""
    aliases: dict[str, str] = {}
    """Name the model sees → name of the tool, where the file uses names of its own."""


class Definition(Struct, frozen=True, kw_only=True):
    """One kind of agent."""

    name: str
    dialect: Dialect
    source: Source
    path: str
    """The file; for a builtin, its packaged file."""
    description: str = ""
    display_name: str = ""
    prompt: str = ""
    """The body: instructions for the model."""
    prompt_mode: Literal["replace", "append"] = "replace"
    """Instead of the parent's system prompt, or after it."""
    enabled: bool = True
    readonly: bool = False
    tools: DeclaredTools = DeclaredTools()
    allowed_subagents: tuple[str, ...] | None = None
    """Agents it may delegate to; None: none, unless a delegation tool is listed in `tools`."""
    extensions: Selection = True
    exclude_extensions: tuple[str, ...] = ()
    mcp_servers: tuple[str, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    skills: Selection = True
    memory: Literal["user", "project", "local"] | None = None
    model: str | None = None
    is_model_wish: bool = False
    """Use the model when it is there, else the parent's, without a word."""
    thinking: str | None = None
    max_turns: int | None = None
    """None: not said. 0: no limit, and the caller cannot set one."""
    max_tokens_total: int | None = None
    max_cost: float | None = None
    isolated: bool | None = None
    """No extensions, no skills. For this and the next ones: None leaves it to the caller, a value is final."""
    inherit_context: bool | None = None
    isolation: Literal["worktree", "off"] | None = None
    persist_session: bool | None = None
    session_dir: str | None = None
    output_transcript: bool | None = None
    runner: Runner | None = None
    completion: Literal["text", "finalize"] = "text"
    """What ends a run well: its last text, or a call of `subagent_finalize`."""
    color: str | None = None
    shadows: tuple[str, ...] = ()
    """Files of the same name that this one hides, nearest first."""
    lines: dict[str, int] = {}
    """Line of each field in the file, for messages."""

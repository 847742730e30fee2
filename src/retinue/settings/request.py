"""Request: the options with which a caller opens a Retinue; everything else comes from the user's files."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.messages import ThinkingLevel
from retinue.engine.limits import Limits


class SessionStart(Struct, frozen=True):
    """The initial content of a session that has to be created."""

    id: str = ""
    """Empty for a new id."""
    parent: str = ""
    """The file of the parent session."""
    name: str = ""
    cwd: str = ""
    """The folder that the session is about, if it is not the working folder."""
    labels: Mapping[str, Any] = {}
    """Custom entries by type."""


class SessionWish(Struct, frozen=True):
    kind: Literal["new", "none", "children", "newest", "named", "exact"] = "new"
    """`none` stores nothing, `children` only the sessions of subagents; `named`: a path, an id or the beginning of one;
    `exact`: this id, created if missing.
    """
    reference: str = ""
    directory: str = ""
    name: str = ""
    is_alone: bool = False
    """A separate process owns the session, even below another session; its folder may be anywhere."""
    is_fleeting: bool = False
    """The content is also stored elsewhere, so that syncing to disk is unnecessary."""
    cover: SessionStart = field(default_factory=SessionStart)


class Request(Struct, frozen=True):
    """How a Retinue is opened."""

    model: str | None = None
    provider: str | None = None
    api_key: str | None = None
    thinking: ThinkingLevel | None = None
    models: Sequence[str] = ()
    """Models to start with and cycle through, in the form of `enabledModels`; empty for the settings' choice."""
    session: SessionWish = field(default_factory=SessionWish)
    agent: str | None = None
    """The definition that the main agent runs as."""
    tools: Sequence[str] | None = None
    """Exactly these, including delegation tools; None for the settings' choice."""
    exclude_tools: Sequence[str] = ()
    surfaces: Sequence[str] | None = None
    """Surfaces whose delegation tools are offered, `*` for all; None for the settings' choice."""
    system_prompt: str | None = None
    append_system_prompt: Sequence[str] = ()
    sections: Mapping[str, str] | None = None
    """The whole prompt, instead of one built from the fields above and from files."""
    context_files: bool = True
    skills: bool = True
    mcp_servers: Mapping[str, Any] = {}
    """Servers that the caller brings along, in the form of `mcp.json`; they count as the user's."""
    approve: bool | None = None
    offline: bool = False
    limits: Limits = field(default_factory=Limits)
    is_child: bool = False
    """Whether another agent has started this process."""
    is_hosted: bool = False
    """Whether a worker executes that agent's run, so that its tools are already decided."""
    is_readonly: bool = False
    is_fork: bool = False
    """Whether its session begins with the request of the run that started this process."""
    """The run's commands, and everything it starts, may change nothing."""
    inherited_provider: str | None = None
    inherited_model: str | None = None
    """The parent's; used if neither the request nor the session names a model."""
    inherited_thinking: ThinkingLevel | None = None
    result: str = ""
    """What the parent says about the result to deliver."""

    def __repr__(self) -> str:
        return f"Request(model={self.model!r}, agent={self.agent!r}, …)"  # the key must not get into a log

"""What a caller may ask for; everything else comes from the user's files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from retinue.core.messages import ThinkingLevel
from retinue.engine.limits import Limits


@dataclass(frozen=True, slots=True)
class SessionCover:
    """What a session begins with when it has to be made."""

    id: str = ""
    """Empty for a new one."""
    parent: str = ""
    """The file of the session it belongs to."""
    name: str = ""
    cwd: str = ""
    """The folder it is about, when that is another one than it is worked on in."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    """Custom entries by their kind."""


@dataclass(frozen=True, slots=True)
class SessionWish:
    """Which session to work in."""

    kind: Literal["new", "none", "children", "newest", "named", "exact"] = "new"
    """`none` keeps nothing, `children` only the sessions of runs; `named`: a path, an id or the start of one; `exact`:
    this id, made if there is none."""
    reference: str = ""
    directory: str = ""
    name: str = ""
    is_alone: bool = False
    """A process of its own keeps it, also where it lies below another session; it is at home wherever that works."""
    is_fleeting: bool = False
    """What is said in it is also kept elsewhere, so that nobody need wait for the disk."""
    cover: SessionCover = field(default_factory=SessionCover)


@dataclass(frozen=True, slots=True)
class Request:
    """How a Retinue is opened."""

    model: str | None = None
    provider: str | None = None
    api_key: str | None = field(default=None, repr=False)
    thinking: ThinkingLevel | None = None
    models: Sequence[str] = ()
    """Those to begin with and to turn through, as `enabledModels` names them; empty for the settings' choice."""
    session: SessionWish = field(default_factory=SessionWish)
    agent: str | None = None
    """The definition the main agent runs as."""
    tools: Sequence[str] | None = None
    """Exactly these, delegation included; None for the settings' choice."""
    exclude_tools: Sequence[str] = ()
    surfaces: Sequence[str] | None = None
    """Those whose delegation tools are offered, `*` for all there are; None for the settings' choice."""
    system_prompt: str | None = None
    append_system_prompt: Sequence[str] = ()
    sections: Mapping[str, str] | None = None
    """The whole prompt, instead of one that is made from these and from files."""
    context_files: bool = True
    skills: bool = True
    approve: bool | None = None
    offline: bool = False
    limits: Limits = field(default_factory=Limits)
    is_child: bool = False
    """Whether another agent has started this process."""
    is_hosted: bool = False
    """Whether it is that agent's run, worked on for it by a worker: which tools it has is settled."""
    is_readonly: bool = False
    """Its commands may change nothing, and neither may anything it starts."""
    inherited_provider: str | None = None
    inherited_model: str | None = None
    """That one's; used when neither the request nor the session says anything."""
    inherited_thinking: ThinkingLevel | None = None

"""What a call of the `subagent` surface works with: the caller of the calling run, and what the user has settled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from retinue.core.definition import Definition
from retinue.engine.request import RunRequest
from retinue.surfaces.base import Caller

Prepare: TypeAlias = "Callable[[SubagentCall], tuple[Definition, RunRequest, str]]"
"""The agent that is meant, its run, and the id by which its session can be continued, or none. Raises RetinueError."""


@dataclass(frozen=True, slots=True)
class SubagentSettings:
    """The user's settings that the surface itself needs."""

    is_enabled: bool
    max_depth: int
    base_depth: int
    """How deep the main agent is itself, when it runs inside another program's agent."""
    timeout_ms: int
    idle_timeout_ms: int
    max_attempts: int
    """The first one included."""
    allow_write: bool
    """Whether agents may write, when the call does not say so."""
    home: str
    """Shown as `~`; empty when there is none."""


@dataclass(frozen=True, slots=True)
class SubagentCall:
    """What a caller wants to be done."""

    agent: str
    task: str
    session_id: str | None = None
    write: bool = False
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class SubagentPorts:
    """Everything a call may ask for."""

    caller: Caller
    settings: SubagentSettings
    prepare: Prepare

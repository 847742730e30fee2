"""What a call of the `subagent` surface works with: the calling run and the user's settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from retinue.core.definition import Definition
from retinue.engine.request import RunRequest
from retinue.surfaces.base import Caller

Prepare: TypeAlias = "Callable[[SubagentCall], tuple[Definition, RunRequest, str]]"
"""Returns the agent, its request, and the id to continue its session (or empty). Raises RetinueError."""


@dataclass(frozen=True, slots=True)
class SubagentSettings:
    """The user's settings that the surface needs."""

    is_enabled: bool
    max_depth: int
    base_depth: int
    """Depth of the main agent itself, if it runs inside the agent of another program."""
    timeout_ms: int
    idle_timeout_ms: int
    max_attempts: int
    """Including the first one."""
    allow_write: bool
    """Whether agents may write if the call does not say."""
    home: str
    """Shown as `~`; empty if there is none."""


@dataclass(frozen=True, slots=True)
class SubagentCall:
    agent: str
    task: str
    session_id: str | None = None
    write: bool = False
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class SubagentPorts:
    caller: Caller
    settings: SubagentSettings
    prepare: Prepare

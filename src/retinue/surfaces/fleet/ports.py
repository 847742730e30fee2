"""What the tools of the `fleet` surface use, and how these tools are created for one run."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import ModelError, RetinueError
from retinue.core.figures import count_percent, count_tokens
from retinue.core.run import Join, Run
from retinue.core.tool import Effect, Tool, ToolResult
from retinue.engine.limits import Limits
from retinue.engine.session_path import PathBases
from retinue.surfaces.base import Caller
from retinue.surfaces.fleet.status import Figures, measure_ms, roll_up
from retinue.tools.registry import build_family

KEEP_S = 600.0
MAX_KEPT = 200
DescriptionMode = Literal["full", "compact", "custom"]


class FleetSettings(Struct, frozen=True):
    """The user's settings that the tools need."""

    default_max_turns: int | None = None
    """For runs whose file and call set none; None means no limit."""
    default_join: Join = "async"
    scheduling: bool = True
    model_scope: tuple[str, ...] = ()
    """`enabledModels` if `scopeModels` is on; empty means no check."""
    wait_timeout_s: float = 270.0
    limits: Limits = field(default_factory=Limits)
    """For background runs."""
    description_mode: DescriptionMode = "full"
    fallback_agent: str | None = None
    """Used in place of an unknown agent; None refuses the call."""
    output_transcript: bool = True
    transcript_dir: str = ""
    """`<project>/.pi/output`; empty writes no transcripts."""
    rollup_usage: bool = False
    """Whether a child's tokens are also counted for its ancestors."""
    notifies: bool = True
    """Whether the caller is notified when a run ends; a client of the MCP server is not."""
    agent_dir: str = "~/.pi/agent"
    """The directory of the user's agents, for the tool's description."""
    template_files: tuple[Path, ...] = ()
    """Possible files for a custom description; the first that is not empty is used."""
    read_template: Callable[[Path], str | None] = lambda path: None
    """Returns the text of a file, None if it does not exist. Raises RetinueError."""
    grounds: PathBases = field(default_factory=PathBases)
    """Base directories for relative paths in agent files."""


class ScheduledCall(Struct, frozen=True):
    id: str
    name: str
    kind: Literal["cron", "once", "interval"]
    next_run: str = ""
    """ISO time; empty if unknown."""
    note: str = ""


class FailedCalls:
    """Failed calls of one main session, kept for a while so that a long prompt need not be written again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._saved: dict[str, tuple[float, dict[str, Any]]] = {}

    def save(self, arguments: Mapping[str, Any], handle: str | None = None) -> str:
        """Save the arguments of a call, under its old handle if it was a retry."""
        self._sweep()
        handle = handle or f"retry-{os.urandom(4).hex()}"
        self._saved.pop(handle, None)
        self._saved[handle] = self._clock.steady_s(), dict(arguments)
        while len(self._saved) > MAX_KEPT:
            del self._saved[next(iter(self._saved))]
        return handle

    def find(self, handle: str) -> dict[str, Any] | None:
        """Return saved arguments; None if there are none or they are too old."""
        self._sweep()
        kept = self._saved.get(handle)
        return None if kept is None else dict(kept[1])

    def _sweep(self) -> None:
        oldest_s = self._clock.steady_s() - KEEP_S
        for handle in [handle for handle, (saved_s, _) in self._saved.items() if saved_s <= oldest_s]:
            del self._saved[handle]


class FleetPorts(Struct, frozen=True):
    """What the tools of one run use."""

    caller: Caller
    read_settings: Callable[[], FleetSettings] = FleetSettings
    """Called each time, because the user may change settings during a session."""
    retries: FailedCalls | None = None
    """Shared by all runs of the main session; None creates one for these tools."""
    schedule: Callable[..., ScheduledCall] | None = None
    """Takes a schedule and the members of its job. None while no scheduler is active. Raises RetinueError."""
    check_worktree: Callable[[Path], Awaitable[None]] | None = None
    """Raises RetinueError if the repository around a directory cannot be copied."""

    @property
    def settings(self) -> FleetSettings:
        return self.read_settings()

    def measure(self, run: Run) -> Figures:
        """Return what a run has used so far, including its descendants if the settings say so."""
        usage = run.usage
        if self.settings.rollup_usage:
            usage = roll_up(self.caller.manager.list_runs()).get(run.id, usage)
        percent = count_percent(run.context_tokens, self._find_window(run)) if run.context_tokens else None
        return Figures(count_tokens(usage), percent, measure_ms(run, self.caller.clock.now_ms()))

    def _find_window(self, run: Run) -> int | None:
        """Return the context window of a run's model; None if unknown."""
        live = self.caller.manager.live(run.id)
        if live is not None:
            return live.setup.model.info.context_window
        try:
            return self.caller.resolve_model(str(run.invocation.get("model")), is_choice=True).info.context_window
        except ModelError:
            return None


class FleetTool:
    effect = Effect.DELEGATE
    guidelines: tuple[str, ...] = ()

    def __init__(self, ports: FleetPorts) -> None:
        self._ports = ports
        self._caller = ports.caller


class Refusal(RetinueError):
    """Raised inside a fleet tool when a call is refused; the text goes to the model."""

    def to_result(self) -> ToolResult:
        return ToolResult.of(str(self), {}, is_error=True)


def tell_missing(run_id: str) -> str:
    return f'Agent not found: "{run_id}". It may have been cleaned up.'


def map_fleet_tools(ports: FleetPorts) -> dict[str, Tool]:
    """Return the tools by name. MUST NOT read their descriptions, because the Manager may not exist yet."""
    shared = ports if ports.retries is not None else replace(ports, retries=FailedCalls(ports.caller.clock))
    return build_family("fleet", shared)

"""What the tools of the fleet work with, and the tools themselves for one run."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from retinue.core.clock import Clock
from retinue.core.errors import ModelError, RetinueError
from retinue.core.run import Grant, Join, Run
from retinue.core.tool import Tool, ToolResult
from retinue.engine.limits import Limits
from retinue.engine.session_path import PathBases
from retinue.surfaces.base import Caller
from retinue.surfaces.fleet.status import Figures, count_context, count_tokens, measure_ms, roll_up
from retinue.tools.registry import build_family

KEEP_S = 600.0
MAX_KEPT = 200
"""Of failed calls."""
DescriptionMode = Literal["full", "compact", "custom"]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The user's settings that the tools themselves need."""

    default_max_turns: int | None = None
    """Of runs whose file and call name none; None for no limit."""
    default_join: Join = "async"
    scheduling: bool = True
    model_scope: tuple[str, ...] = ()
    """`enabledModels` when `scopeModels` is on; empty for no check."""
    wait_timeout_s: float = 270.0
    limits: Limits = field(default_factory=Limits)
    """Of a background run."""
    description_mode: DescriptionMode = "full"
    fallback_agent: str | None = None
    """Runs instead of an unknown agent; None refuses."""
    output_transcript: bool = True
    transcript_dir: str = ""
    """`<project>/.pi/output`; empty writes none."""
    rollup_usage: bool = False
    """Count a child's tokens at its ancestors too."""
    notifies: bool = True
    """Whether the caller hears by itself that a run has ended; a host of the MCP server does not."""
    agent_dir: str = "~/.pi/agent"
    """For the tool's description: where the user's own agents lie."""
    template_files: tuple[Path, ...] = ()
    """Where a custom description may lie, the first that has text wins."""
    read_template: Callable[[Path], str | None] = lambda path: None
    """Reads one; None when there is none. Raises RetinueError."""
    grounds: PathBases = field(default_factory=PathBases)
    """Where paths in agents' files begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWish:
    """A call that is to happen later; the values are raw, they are resolved when it fires."""

    schedule: str
    name: str
    subagent_type: str
    prompt: str
    model: str | None = None
    thinking: str | None = None
    max_turns: int | None = None
    isolated: bool | None = None
    isolation: str | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    grant: Grant | None = None
    """What whoever wishes may use; the run gets no more."""
    depth: int = 0
    """How deep that one is."""


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """What became of a wish."""

    id: str
    name: str
    kind: Literal["cron", "once", "interval"]
    next_run: str = ""
    """ISO; empty when it is not known."""
    note: str = ""


def make_handle() -> str:
    """`retry-` and eight hexadecimal digits."""
    return f"retry-{secrets.token_hex(4)}"


class RetryBook:
    """The failed calls of one main session, kept for a while: the long prompt need not be written again."""

    def __init__(self, clock: Clock, new_handle: Callable[[], str] = make_handle) -> None:
        self._clock = clock
        self._new_handle = new_handle
        self._saved: dict[str, tuple[float, dict[str, Any]]] = {}

    def save(self, arguments: Mapping[str, Any], handle: str | None = None) -> str:
        """Keep the arguments of a call, under the handle it was retried with if there was one."""
        self._sweep()
        handle = handle or self._new_handle()
        self._saved.pop(handle, None)
        self._saved[handle] = self._clock.steady_s(), dict(arguments)
        while len(self._saved) > MAX_KEPT:
            del self._saved[next(iter(self._saved))]
        return handle

    def find(self, handle: str) -> dict[str, Any] | None:
        """The arguments kept under a handle; None when there are none, or they are too old."""
        self._sweep()
        kept = self._saved.get(handle)
        return None if kept is None else dict(kept[1])

    def clear(self) -> None:
        """Forget everything: another session begins."""
        self._saved.clear()

    def _sweep(self) -> None:
        oldest_s = self._clock.steady_s() - KEEP_S
        for handle in [handle for handle, (saved_s, _) in self._saved.items() if saved_s <= oldest_s]:
            del self._saved[handle]


@dataclass(frozen=True, slots=True)
class FleetPorts:
    """Everything the tools of one run may ask for."""

    caller: Caller
    read_settings: Callable[[], FleetSettings] = FleetSettings
    """Asked each time, since the user may change them while a session goes on."""
    retries: RetryBook | None = None
    """Of the main session, shared by all its runs; None gives the tools one of their own."""
    schedule: Callable[[ScheduleWish], ScheduledCall] | None = None
    """None while no scheduler works. Raises RetinueError."""
    check_worktree: Callable[[Path], Awaitable[None]] | None = None
    """Raises RetinueError when a copy of the repository around a directory cannot be made."""

    @property
    def settings(self) -> FleetSettings:
        """As they are now."""
        return self.read_settings()

    def measure(self, run: Run) -> Figures:
        """What a run has used so far; with its descendants' tokens where the settings say so."""
        usage = run.usage
        if self.settings.rollup_usage:
            usage = roll_up(self.caller.manager.list_runs()).get(run.id, usage)
        return Figures(
            count_tokens(usage), count_context(run, self.find_window), measure_ms(run, self.caller.clock.now_ms())
        )

    def find_window(self, run: Run) -> int | None:
        """The context window of a run's model; None when it is not known."""
        live = self.caller.manager.live(run.id)
        if live is not None:
            return live.setup.model.info.context_window
        try:
            return self.caller.resolve_model(str(run.invocation.get("model")), is_choice=True).info.context_window
        except ModelError:
            return None


class Refusal(RetinueError):
    """Raised inside a tool of the fleet when a call cannot be done; the text goes to the model."""

    def to_result(self) -> ToolResult:
        """The text, marked as an error, so that nobody takes it for success."""
        return ToolResult.of(str(self), {}, is_error=True)


def tell_missing(run_id: str) -> str:
    """There is no such run."""
    return f'Agent not found: "{run_id}". It may have been cleaned up.'


def map_fleet_tools(ports: FleetPorts) -> dict[str, Tool]:
    """By name, without asking for their descriptions: the Manager may not exist yet."""
    shared = ports if ports.retries is not None else replace(ports, retries=RetryBook(ports.caller.clock))
    return build_family("fleet", shared)

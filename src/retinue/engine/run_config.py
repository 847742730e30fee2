"""What runs are built from: plain values, feature factories and callables, filled by `settings` and `app`.

Also what is sent with a run that works in another process or on another machine.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from retinue.core.definition import REMOTE as REMOTE
from retinue.core.definition import Definition
from retinue.core.definition import Runner as Runner
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Model
from retinue.core.tool import Tool
from retinue.engine.budget import Lease
from retinue.engine.bus import Listener
from retinue.engine.calls import CallHook
from retinue.engine.inbox import Delivery
from retinue.engine.limits import Limits
from retinue.engine.model_choice import NamedModel
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun
from retinue.engine.setup import Feature, RunSetup
from retinue.engine.warm_up import WarmUp
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig
from retinue.tools.policy import Rights, Terms
from retinue.tools.selectors import Offer

MAIN = Definition(name="", dialect="pi", source="builtin", path="")
"""The definition of a main agent without an agent file."""

HERE: tuple[Runner, ...] = ("inprocess", "durable")
"""Runners that work in this process."""
PromptStyle: TypeAlias = Literal["definition", "task", "profile"]
"""How a child is prompted: as its file says, with the task in the system prompt, or as a profile with rules."""


class Additions(Struct, frozen=True):
    """What one run gets in addition to all others, such as tools of its extensions."""

    tools: Mapping[str, Tool] = {}
    offers: Mapping[str, Offer] = {}
    """Where the tools come from, by tool name."""
    hooks: Sequence[CallHook] = ()
    features: Sequence[Feature] = ()
    """New objects, entered after all other features."""
    found: frozenset[str] | None = None
    """Lower-case names of all existing extensions; None if unknown."""
    failed: frozenset[str] = frozenset()
    """Extensions that the run wanted and that could not be loaded."""
    listeners: Sequence[tuple[Listener, bool]] = ()
    """Receivers of the run's events; True means that they want partial replies."""
    release: Callable[[], None] = lambda: None
    """Called exactly once when the run is over, even if it never started."""
    points: Sequence[Any] = ()
    """Hooks of the run; their type is known to `features.hooks` only."""


NOTHING = Additions()


async def add_nothing(definition: Definition, request: RunRequest) -> Additions:
    return NOTHING


class RunPlan(Struct, frozen=True):
    """What was decided about one run."""

    definition: Definition
    request: RunRequest
    runner: Runner
    model: Model
    """Without the budget wrapper."""
    thinking: ThinkingLevel
    named: NamedModel
    """The model name that was asked for, resolved."""
    rights: Rights
    terms: Terms
    limits: Limits
    cwd: Path
    tools: Mapping[str, Tool]
    """All existing tools, by their original names."""
    branch: str = ""
    """The git branch with the changes of an earlier attempt."""
    additions: Additions = NOTHING
    is_fork: bool = False
    """Whether it continues its parent's request."""


class RemoteRequest(Struct, frozen=True):
    """What is needed, in addition to its setup, to run something in another process or on another machine."""

    runner: Runner
    definition: Definition
    request: RunRequest
    rights: Rights
    session_file: str
    """Empty if the session is not saved."""
    lease: Lease
    attempt: int = 1
    branch: str = ""
    """The git branch with the changes of an earlier attempt."""
    parent_session: str = ""
    """The session file of the parent; empty if there is none."""
    named: NamedModel = field(default_factory=NamedModel)
    """The model that the request or the definition names."""
    is_bare: bool = False
    """Whether the command line holds only what the definition says. Callers of that surface rely on it."""


class Origin(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run started by a run on another machine: what is needed to judge its calls."""

    run_id: str
    agent: str
    surface: str
    readonly: bool = False
    confined: bool = False
    """Whether its commands cannot change anything, because they run in a read-only sandbox."""


class SurfaceRules(Struct, frozen=True):
    """What is different for the runs of one surface."""

    max_depth: int = 1
    prompt: PromptStyle = "definition"
    is_exact: bool = False
    """Whether runs get the listed tools and nothing else."""
    readonly_set: frozenset[str] | None = None
    """The exact set of read-only tools; None means that the effect of a tool decides."""
    asks_each_call: bool = False
    """Whether each call is approved in this process. Such runs never work in another process on this machine."""
    is_lenient: bool = False
    """Whether a wrong model in an agent file is ignored instead of failing the run."""
    is_bare: bool = False
    """Whether a process for such a run receives only what the definition says."""


class Policy(Struct, frozen=True):
    """What the user decided for all agents."""

    readonly_bash: bool = False
    is_confined: bool = False
    confinement: str = "no sandbox is available on this machine"
    judge: Callable[[], tuple[bool, str]] | None = None
    """Returns `is_confined` and `confinement` on demand, in place of the two fields; it is slow."""
    has_lsp: bool = True
    always_exposed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    """Tools that no agent gets."""
    surfaces: Mapping[str, SurfaceRules] = field(default_factory=dict)
    base_depth: int = 0
    """Depth of the main agent itself, if it runs inside the agent of another program."""
    base_id: str = ""
    """The name of that agent, for the agents that the main agent starts."""
    limits: Limits = field(default_factory=Limits)
    allow_pi: bool = False
    """Whether `pi` processes, which cannot enforce a budget, are allowed when there is one."""

    def tell(self) -> tuple[bool, str]:
        """Return whether read-only commands can be sandboxed, and if not, why."""
        return self.is_confined, self.confinement

    def find_surface(self, name: str) -> SurfaceRules:
        """Return the rules of a surface; the default rules for unknown surfaces."""
        return self.surfaces.get(name) or SurfaceRules()


class MainRules(Struct, frozen=True):
    """What a main agent has in place of a parent."""

    cwd: Path
    choose_model: Callable[[Definition], tuple[Model, ThinkingLevel]]
    """Raises ModelError."""
    choose_tools: Callable[[RunPlan, Mapping[str, Tool]], Mapping[str, Tool]]
    """Chooses from the tools of the definition. Raises UsageError for a tool that is not allowed."""
    build_sections: Callable[[Definition, Mapping[str, Tool]], Mapping[str, str]]
    charge: Callable[[Model], Model]
    """Wraps the model so that it stops when the budget of the prompt is spent."""
    warn: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Error texts for calls of tools that are not available, by tool name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    redact: Callable[[Any], Any] | None = None
    spill_dir: Path | None = None
    is_fork: bool = False
    """Whether its session began with the request of another process, which it continues."""
    steering_mode: Delivery = "one-at-a-time"
    follow_up_mode: Delivery = "one-at-a-time"


class RunConfig(Struct, frozen=True):
    """Everything that a main agent and its runs are built from."""

    find: Callable[[str, str], Definition]
    """Arguments: name and surface. Raises RetinueError if there is no such agent, or it cannot be run."""
    tools: Mapping[str, Tool]
    list_features: Callable[[RunPlan], Sequence[Feature]] = lambda plan: plan.additions.features
    find_faults: Callable[[str], Sequence[str]] = lambda name: ()
    """Returns the problems of agent files with this name."""
    compaction: Callable[[str], CompactionConfig] = lambda ref: CompactionConfig()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    policy: Policy = field(default_factory=Policy)
    context_files: Sequence[tuple[str, str]] = ()
    """Project instructions (path and text), for agents whose prompt includes them."""
    rules: Sequence[str] = ()
    orphan_dir: Path | None = None
    """Where sessions are saved of runs whose main agent has no session."""
    extend: Callable[[Definition, RunRequest], Awaitable[Additions]] = add_nothing
    lease: Lease = field(default_factory=Lease)
    """The budget of one main prompt, shared by all runs it starts."""
    fallback_models: Sequence[str] = ()
    """Models to ask while a usage limit lasts, for definitions that name none."""
    fallback_after_s: float = 300.0
    """How long a run waits before it asks one of them."""
    warm_up: WarmUp | None = None
    """Lets the first of several runs ask alone whose requests begin alike."""
    runner: Runner = "inprocess"
    """The runner for definitions that name none."""
    asks: Callable[[], bool] = lambda: False
    """Whether a person may be asked to approve calls; a process of its own cannot ask."""
    has_remote: bool = False
    """Whether runs can be sent to other machines. Approvals and hooks stay here in any case."""
    send_out: Callable[[RunSetup, RemoteRequest], LiveRun] | None = None
    """Creates a run that works in a process of its own; None if all runs work here."""
    main: MainRules | None = None

    def find_main(self) -> MainRules:
        """Return the rules of the main agent. Raises ValueError if only children are built."""
        if self.main is None:
            raise ValueError("a run without a parent needs the rules of a main agent")
        return self.main

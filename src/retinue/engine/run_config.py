"""What runs are built from, filled by `settings` and `app`: plain values, feature factories, callables.

Also what is sent along with a run that works elsewhere.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

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
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig
from retinue.tools.policy import Rights, Terms
from retinue.tools.selectors import Offer

MAIN = Definition(name="", dialect="pi", source="builtin", path="")
"""Of a main agent that runs as no agent's file says."""

HERE: tuple[Runner, ...] = ("inprocess", "durable")
"""Runners that work in this process."""
PromptStyle: TypeAlias = Literal["definition", "task", "profile"]
"""How a child is briefed: as its file says, with the task in the system prompt, or as a profile with rules."""


class Additions(Struct, frozen=True):
    """What one run gets beside what all have, such as what its extensions bring."""

    tools: Mapping[str, Tool] = {}
    offers: Mapping[str, Offer] = {}
    """Where its tools come from."""
    hooks: Sequence[CallHook] = ()
    features: Sequence[Feature] = ()
    """New ones, entered after all others."""
    found: frozenset[str] | None = None
    """All extensions that exist, in lower case; None when that is not known."""
    failed: frozenset[str] = frozenset()
    """Those that it wanted and that could not be loaded."""
    listeners: Sequence[tuple[Listener, bool]] = ()
    """Who receives the events of the run, and whether they want replies as they arrive."""
    release: Callable[[], None] = lambda: None
    """Called once when the run is over, however it ends, also when it never began."""
    points: Sequence[Any] = ()
    """Hooks at points of a run; what a hook is, `features.hooks` knows."""


NOTHING = Additions()


async def add_nothing(definition: Definition, request: RunRequest) -> Additions:
    """For runs without extensions."""
    return NOTHING


class RunPlan(Struct, frozen=True):
    """What has been decided about one run."""

    definition: Definition
    request: RunRequest
    runner: Runner
    model: Model
    """Without a budget around it."""
    thinking: ThinkingLevel
    named: NamedModel
    """The name that led to it, looked up."""
    rights: Rights
    terms: Terms
    limits: Limits
    cwd: Path
    tools: Mapping[str, Tool]
    """Every tool there is, by its own name."""
    branch: str = ""
    """Where an earlier attempt has left its changes."""
    additions: Additions = NOTHING


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """What has to be known of a run, beside its setup, to let it work elsewhere."""

    runner: Runner
    definition: Definition
    request: RunRequest
    rights: Rights
    session_file: str
    """Where its session is kept; empty for nowhere."""
    lease: Lease
    attempt: int = 1
    branch: str = ""
    """Where an earlier attempt has left its changes."""
    parent_session: str = ""
    """The file of the session of whoever asked for it; empty where there is none."""
    named: NamedModel = field(default_factory=NamedModel)
    """The model that its request or its file names."""
    is_bare: bool = False
    """Whether only what the definition says is on its command line: callers of its surface rely on that."""


class Origin(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run that was started by one on another machine: what has to be known to judge it."""

    run_id: str
    agent: str
    surface: str
    readonly: bool = False
    confined: bool = False
    """Its commands can change nothing, whatever they are."""


@dataclass(frozen=True, slots=True)
class SurfaceRules:
    """What is different for the runs of one surface."""

    max_depth: int = 1
    """How deep they may nest."""
    prompt: PromptStyle = "definition"
    is_exact: bool = False
    """They get the tools that are listed and nothing else."""
    readonly_set: frozenset[str] | None = None
    """The exact list of read-only tools; None: a tool's effect decides."""
    asks_each_call: bool = False
    """Their calls are asked about in this process, so they never work in another one on this machine."""
    is_lenient: bool = False
    """A wrong model in a file does not stop them."""
    is_bare: bool = False
    """A process that works for one is told what the definition says and nothing else."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user decides about all agents."""

    readonly_bash: bool = False
    is_confined: bool = False
    confinement: str = "no sandbox is available on this machine"
    judge: Callable[[], tuple[bool, str]] | None = None
    """Says both when they are needed, which takes a while; instead of the two above."""
    has_lsp: bool = True
    always_exposed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    """Tools that no agent has."""
    surfaces: Mapping[str, SurfaceRules] = field(default_factory=dict)
    base_depth: int = 0
    """How deep the main agent is itself, when it runs inside another program's agent."""
    limits: Limits = field(default_factory=Limits)
    """For runs whose request and file say nothing."""
    allow_pi: bool = False
    """Whether a pi, which cannot be held to a budget, may work under one."""

    def tell(self) -> tuple[bool, str]:
        """Whether read-only commands can be confined, and why not."""
        return self.is_confined, self.confinement

    def find_surface(self, name: str) -> SurfaceRules:
        """The rules of a surface; the usual ones for one that somebody else has made."""
        return self.surfaces.get(name) or SurfaceRules()


@dataclass(frozen=True, slots=True)
class MainRules:
    """What a main agent has instead of a parent."""

    cwd: Path
    choose_model: Callable[[Definition], tuple[Model, ThinkingLevel]]
    """Raises ModelError."""
    choose_tools: Callable[[RunPlan, Mapping[str, Tool]], Mapping[str, Tool]]
    """From those that its definition gives it. Raises UsageError for a tool that it may not have."""
    build_sections: Callable[[Definition, Mapping[str, Tool]], Mapping[str, str]]
    charge: Callable[[Model], Model]
    """The model, asked only as far as the budget of a prompt goes."""
    warn: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)
    refusals: Mapping[str, str] = field(default_factory=dict)
    """What is answered to a call of a tool that it could not be given."""
    environment: Mapping[str, str] = field(default_factory=dict)
    redact: Callable[[Any], Any] | None = None
    spill_dir: Path | None = None
    steering_mode: Delivery = "one-at-a-time"
    follow_up_mode: Delivery = "one-at-a-time"


@dataclass(frozen=True, slots=True)
class RunConfig:
    """All that a main agent, or the runs of one, are built from."""

    find: Callable[[str, str], Definition]
    """By name and surface; raises RetinueError for a name that cannot be run."""
    tools: Mapping[str, Tool]
    list_features: Callable[[RunPlan], Sequence[Feature]] = lambda plan: plan.additions.features
    find_faults: Callable[[str], Sequence[str]] = lambda name: ()
    """What is wrong with files that are an agent of this name, or would be."""
    compaction: Callable[[str], CompactionConfig] = lambda ref: CompactionConfig()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    policy: Policy = field(default_factory=Policy)
    context_files: Sequence[tuple[str, str]] = ()
    """Instructions of the project, for agents whose prompt has them."""
    rules: Sequence[str] = ()
    orphan_dir: Path | None = None
    """Where sessions of runs are kept whose main agent has none."""
    extend: Callable[[Definition, RunRequest], Awaitable[Additions]] = add_nothing
    lease: Lease = field(default_factory=Lease)
    """What one main prompt may spend with all it starts."""
    runner: Runner = "inprocess"
    """Where runs work whose definition does not say."""
    asks: Callable[[], bool] = lambda: False
    """Whether a person may be asked about calls; a question does not get out of another process."""
    has_remote: bool = False
    """Whether there are other machines to work on; what is asked or ruled is so here, wherever a run works."""
    send_out: Callable[[RunSetup, RemoteRequest], LiveRun] | None = None
    """Makes a run that works in a process of its own; None where all work here."""
    main: MainRules | None = None
    """For a run without a parent."""

    def find_main(self) -> MainRules:
        """What a main agent has; raises ValueError where only children are built."""
        if self.main is None:
            raise ValueError("a run without a parent needs the rules of a main agent")
        return self.main

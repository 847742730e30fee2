"""What all runs of one main agent are made from, handed in from above: definitions, models, tools, the user's policy.

Plain data and ports. Must not know where any of it comes from, nor what is done with it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from retinue.core.definition import Definition
from retinue.core.model import Model, ModelInfo
from retinue.core.tool import Tool
from retinue.engine.budget import Lease
from retinue.engine.child_prompt import Place
from retinue.engine.extras import Extras, add_nothing
from retinue.engine.fitting import Fitting
from retinue.engine.remote_request import Errand, Runner
from retinue.engine.request import RunRequest
from retinue.engine.revoked_tools import Restraint
from retinue.engine.runner import LiveRun
from retinue.engine.setup import Feature, RunSetup
from retinue.models.resolve import Choice
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig


class Models(Protocol):
    """Where models come from."""

    def resolve(self, query: str, *, is_choice: bool = False) -> Choice:
        """The model a name means; `is_choice`: a person wrote it. Raises OutOfReach or another ModelError."""
        ...

    def open(self, info: ModelInfo) -> Model:
        """A model ready to be asked. Raises ModelError or ConfigError."""
        ...


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
    max_depth: Mapping[str, int] = field(default_factory=lambda: {"fleet": 4})
    """How deep runs of a surface may nest; 1 where it is not said."""
    base_depth: int = 0
    """How deep the main agent is itself, when it runs inside another program's agent."""
    default_max_turns: int | None = None
    grace_turns: int = 5
    allow_pi: bool = False
    """Whether a pi, which cannot be held to a budget, may work under one."""

    def tell(self) -> tuple[bool, str]:
        """Whether read-only commands can be confined, and why not."""
        return self.is_confined, self.confinement

    def find_depth(self, surface: str) -> int:
        return self.max_depth.get(surface, 1)


@dataclass(frozen=True, slots=True)
class Kit:
    """All that runs of one main agent are made from."""

    find: Callable[[str, str], Definition]
    """By name and surface; raises RetinueError for a name that cannot be run."""
    models: Models
    tools: Mapping[str, Tool]
    survey: Callable[[Path], Awaitable[Place]]
    list_features: Callable[[Fitting], Sequence[Feature]] = lambda fitting: ()
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
    extend: Callable[[Definition, RunRequest], Awaitable[Extras]] = add_nothing
    lease: Lease = field(default_factory=Lease)
    """What one main prompt may spend with all it starts."""
    restraint: Restraint = field(default_factory=Restraint)
    """What has been taken from runs since they began."""
    runner: Runner = "inprocess"
    """Where runs work whose definition does not say."""
    asks: Callable[[], bool] = lambda: False
    """Whether a person may be asked about calls; a question does not get out of another process."""
    has_cluster: bool = False
    """Whether there are other machines to work on; what is asked or ruled is so here, wherever a run works."""
    send_out: Callable[[RunSetup, Errand], LiveRun] | None = None
    """Makes a run that works in a process of its own; None where all work here."""

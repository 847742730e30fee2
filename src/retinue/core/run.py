"""A Run: one execution of an agent on a task, its states, how it ended, and the questions it asks a person.

A Run changes only by folding an Event into it. This file must not know how runs are executed.
"""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from retinue.core.messages import Usage

BRANCH_PREFIX = "pi-agent-"
"""How the names of worktrees and of their branches begin; the id of the run follows."""


class Status(StrEnum):
    """Where a run stands; the last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING)


class Reason(StrEnum):
    """Why a run ended."""

    DONE = "done"
    LENGTH = "length"
    """The last reply was cut off by the model's output limit."""
    TURN_LIMIT_WRAPPED = "turn_limit_wrapped"
    """Asked to wrap up at the limit, and did."""
    TURN_LIMIT = "turn_limit"
    """Still not done after the grace turns."""
    WALL_TIMEOUT = "wall_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    BUDGET = "budget"
    OUTPUT_LIMIT = "output_limit"
    """Its process said more than is read of it."""
    USER = "user"
    PARENT = "parent"
    DEPTH = "depth"
    CRASH = "crash"
    ERROR = "error"
    NOT_FINALIZED = "not_finalized"
    """It had to give its answer by a call, and ended without one."""


Join: TypeAlias = Literal["async", "smart", "group"]
"""How the end of a run is told: alone, together with its siblings when there are some, or together in any case."""


class Finalized(Struct, frozen=True, omit_defaults=True):
    """The answer of a run that has to give one by a call of its own, whatever else it has said."""

    status: Literal["SUCCESS", "ERROR"]
    result: str = ""
    error: str = ""


class Outcome(Struct, frozen=True):
    """How a run ended and what it leaves."""

    status: Status
    reason: Reason
    text: str = ""
    """The last assistant text, also when the run did not finish."""
    error: str = ""
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    session_file: str = ""
    branch: str = ""
    """Where its changes are kept, when it worked in a copy of the repository."""
    notes: str = ""
    """What whatever was around the run has to say about its end."""
    sandbox: str = ""
    """What its commands ran in; empty where nobody knows of any."""
    finalized: Finalized | None = None
    is_unbegun: bool = False
    """Cut off before its first reply, with nothing done: when it goes on, it begins with its task."""
    exit_code: int | None = None
    """Of the process it was, when it was one of its own and came to an end by itself."""

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.usage.cost.total


class Grant(Struct, frozen=True, omit_defaults=True):
    """The most a run may use, as it was when somebody asked for it. It is kept with the run, and never grows."""

    tools: tuple[str, ...] = ()
    """By their own names."""
    readonly: bool = False


class Run(Struct, kw_only=True):
    """What is known about one run. Only `retinue.core.fold` changes it."""

    id: str
    parent_id: str
    depth: int
    agent: str
    """Name of its definition."""
    description: str
    surface: str = ""
    """Which callers' words are used for it."""
    status: Status = Status.QUEUED
    attempt: int = 1
    """Counts resumptions."""
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    usage: Usage = Usage()
    """Of all attempts."""
    context_tokens: int = 0
    """Tokens of the last request and its reply."""
    tool_uses: int = 0
    turns: int = 0
    compactions: int = 0
    activity: str = ""
    """What it is doing, in a word or two."""
    outcome: Outcome | None = None
    is_read: bool = False
    """Its result reached whoever started it."""
    worker: str = ""
    """Who works on it, when that is another machine; `machine` is for whoever shows it."""
    is_guest: bool = False
    """A run on another machine has started it, and there it is queued, stopped and told of; here it is listed."""
    call_id: str = ""
    """The tool call that started it."""
    join: Join = "async"
    is_background: bool = True
    output_file: str = ""
    invocation: dict[str, Any] = {}
    """How it was asked for, for display."""
    branch: str = ""
    """Where the last of its attempts that left changes has put them."""
    grant: Grant | None = None
    """What whoever started it might use then; what it might use itself, once it has begun."""
    extra_depth: int = 0
    """How much deeper it counts than it stands: the clock starts it for an agent that was so deep."""

    @property
    def level(self) -> int:
        """How deep it counts."""
        return self.depth + self.extra_depth

    @property
    def machine(self) -> str:
        """The other machine that works on it; empty for this one."""
        return self.worker

    @property
    def text(self) -> str:
        """What it said last."""
        return self.outcome.text if self.outcome is not None else ""


class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something a run cannot decide itself."""

    id: str
    run_id: str
    agent: str = ""
    """The name of the run's definition; empty for the main agent."""
    kind: Literal["approval", "confirm", "select", "input"] = "approval"
    title: str
    text: str = ""
    """All of what is to be decided, such as the whole command; faces escape it and never shorten it."""
    options: tuple[str, ...] = ("allow", "deny")
    """The answers there are; none for a free one."""
    default: str = "deny"
    """What counts when nobody answers."""
    tool: str = ""

"""A Run: one execution of an agent on a task, its states, its outcome, and the questions it asks the user.

A Run changes only by applying an Event. This file must not know how runs are executed.
"""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from retinue.core.messages import Usage
from retinue.core.receipt import Receipts, Verification

BRANCH_PREFIX = "pi-agent-"
"""How the names of worktrees and of their branches begin; the id of the run follows."""


class Status(StrEnum):
    """The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """For the end of a provider's usage limit."""
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING, Status.WAITING)


class Reason(StrEnum):
    DONE = "done"
    LENGTH = "length"
    """The last reply was cut off by the model's output limit."""
    TURN_LIMIT_WRAPPED = "turn_limit_wrapped"
    """Wrapped up when asked at the limit."""
    TURN_LIMIT = "turn_limit"
    """Not done after the grace turns."""
    WALL_TIMEOUT = "wall_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    BUDGET = "budget"
    OUTPUT_LIMIT = "output_limit"
    """Its process printed more than the limit."""
    USER = "user"
    PARENT = "parent"
    DEPTH = "depth"
    CRASH = "crash"
    ERROR = "error"
    LIMIT = "limit"
    """A provider's usage limit was reached, and nobody wanted to wait; it can be continued."""
    NOT_FINALIZED = "not_finalized"
    """It had to answer with a call of `subagent_finalize`, and ended without one."""
    INVALID_RESULT = "invalid_result"
    """It delivered no result that matches its schema."""
    VERIFICATION_FAILED = "verification_failed"
    """The commands that verify its result failed."""


Join: TypeAlias = Literal["async", "smart", "group"]
"""How the end of a run is reported: alone, with its siblings if there are any, or always in a group."""


class Finalized(Struct, frozen=True, omit_defaults=True):
    """The answer of a run that must finish with a call of `subagent_finalize`."""

    status: Literal["SUCCESS", "ERROR"]
    result: str = ""
    error: str = ""


class Outcome(Struct, frozen=True):
    """How a run ended, and its results."""

    status: Status
    reason: Reason
    text: str = ""
    """The last assistant text, even if the run did not finish."""
    error: str = ""
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    session_file: str = ""
    branch: str = ""
    """The branch with its changes, if it worked in a copy of the repository."""
    notes: str = ""
    """Remarks about its end from features of the run."""
    sandbox: str = ""
    """The sandbox of its commands; empty if unknown."""
    finalized: Finalized | None = None
    is_unbegun: bool = False
    """Stopped before its first reply, with nothing done: when resumed, it starts with its task."""
    exit_code: int | None = None
    """Exit status of its process, if it had its own and that ended by itself."""
    structured: Any = None
    """Its result as data, if it had to match a schema and does."""
    verification: Verification = "not verified"
    """Whether the host has verified its result."""
    receipts: Receipts | None = None
    """What the host saw of its work; None if it saw nothing."""

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.usage.cost.total


class TypedOutcome(Outcome, frozen=True):
    """The outcome of a run with its result as an object of the caller's type."""

    output: Any = None


class Grant(Struct, frozen=True, omit_defaults=True):
    """The maximum rights of a run, as of its request. Stored with the run; never grows."""

    tools: tuple[str, ...] = ()
    """The tools' own names, not aliases."""
    readonly: bool = False


class Run(Struct, kw_only=True):
    """The state of one run. Only `retinue.core.fold` changes it."""

    id: str
    parent_id: str
    depth: int
    agent: str
    description: str
    surface: str = ""
    """The subagent system whose wording is used for it."""
    status: Status = Status.QUEUED
    attempt: int = 1
    """Counts resumptions."""
    queued_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    usage: Usage = Usage()
    """Sum of all attempts."""
    context_tokens: int = 0
    """Tokens of the last request and its reply."""
    tool_uses: int = 0
    turns: int = 0
    compactions: int = 0
    activity: str = ""
    """What it is doing, in one or two words."""
    outcome: Outcome | None = None
    is_read: bool = False
    """The caller has received its result."""
    worker: str = ""
    """The worker on another machine that executes it; views should read `machine`."""
    is_guest: bool = False
    """Started by a run on another machine, which queues it, stops it and reports it; here it is only listed."""
    call_id: str = ""
    join: Join = "async"
    is_background: bool = True
    output_file: str = ""
    invocation: dict[str, Any] = {}
    """How it was requested, for display."""
    branch: str = ""
    """The branch of its last attempt that changed something."""
    grant: Grant | None = None
    """The caller's rights at the time of the request; its own rights once it has started."""
    extra_depth: int = 0
    """Added to `depth`: a schedule started it for an agent that was this deep."""
    questions: "tuple[Question, ...]" = ()
    """What it has asked the agent that started it, and is not answered. They outlive the process that worked on it."""

    @property
    def level(self) -> int:
        """The depth that limits are checked against."""
        return self.depth + self.extra_depth

    @property
    def machine(self) -> str:
        """The other machine that executes it; empty for this one."""
        return self.worker

    @property
    def text(self) -> str:
        """Its last assistant text."""
        return self.outcome.text if self.outcome is not None else ""


class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """A question that a run asks the user."""

    id: str
    run_id: str
    agent: str = ""
    """Name of the run's definition; empty for the main agent."""
    kind: Literal["approval", "confirm", "select", "input", "ask"] = "approval"
    """`ask`: for the agent that started the run, or the user; the options are only proposals."""
    title: str
    text: str = ""
    """Everything that is to be decided, such as the whole command; front ends escape it and never shorten it."""
    options: tuple[str, ...] = ("allow", "deny")
    """The possible answers; empty if any text is accepted."""
    default: str = "deny"
    """Used if nobody answers."""
    tool: str = ""
    reason_for: str = ""
    """The option to which a reason can be added, as in `deny: use the test database`; empty for none."""
    also: tuple[str, ...] = ()
    """Further accepted answers that are not offered."""
    folder: str = ""
    """The working directory of a call that changes a file on this machine, so that the change can be shown."""

    @property
    def whole(self) -> str:
        """What is asked, in full."""
        return self.text or self.title

    def accepts(self, answer: str) -> bool:
        """Return whether the answer is possible."""
        has_reason = bool(self.reason_for) and answer.startswith(f"{self.reason_for}: ")
        return not self.options or self.kind == "ask" or has_reason or answer in (*self.options, *self.also)

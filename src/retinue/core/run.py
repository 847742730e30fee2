"""A Run: one execution of an agent on a task, its states and how it ended.

A Run changes only by folding an Event into it. This file must not know how runs are executed.
"""

from enum import StrEnum

from msgspec import Struct

from retinue.core.messages import Usage


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
    USER = "user"
    PARENT = "parent"
    DEPTH = "depth"
    CRASH = "crash"
    ERROR = "error"


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

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.usage.cost.total

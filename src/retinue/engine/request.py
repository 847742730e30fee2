"""What a surface asks the Manager for: plain data, so that it survives a crash and can travel."""

from typing import Any, Literal

from msgspec import Struct

from retinue.core.run import Grant, Join


class RunRequest(Struct, frozen=True, kw_only=True):
    """One run to be, settled: what the call said, what the definition locks, what the settings add."""

    agent: str
    task: str
    description: str
    surface: str
    preface: str = ""
    """Put before the task, such as the parent's conversation; the task alone is what people see."""
    model: str | None = None
    """`provider/id`; None takes the parent's."""
    is_model_chosen: bool = False
    """Whether a person named its provider, which then may be another one than the main model's."""
    thinking: str | None = None
    max_turns: int | None = None
    isolated: bool = False
    isolation: Literal["worktree"] | None = None
    cwd: str | None = None
    """Absolute; None takes the parent's."""
    allow_write: bool | None = None
    """False leaves only read-only tools; None lets the definition decide."""
    join: Join = "async"
    is_background: bool = True
    skips_queue: bool = False
    call_id: str = ""
    occasion: str = ""
    """What starts it, where that must start one run only, whoever asks again after a crash."""
    session_file: str = ""
    """Where its session is kept; empty for the usual place beside its parent's."""
    session_dir: str = ""
    """The folder of its session, as `<run id>.jsonl`; the Manager makes a `session_file` of it."""
    keeps_session: bool = True
    """False leaves no session behind: the run can be resumed as long as this process lives."""
    transcript_dir: str = ""
    """Where a transcript for people is kept, as `agent-<run id>.jsonl`; empty for none."""
    wall_s: float | None = None
    idle_s: float | None = None
    strict_idle: bool = False
    """Only a finished message, tool call or turn is a sign of life."""
    tool_s: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    invocation: dict[str, Any] = {}
    grant: Grant | None = None
    """The most it may use beside what its parent may: somebody else asked for it, at another time."""
    extra_depth: int = 0
    """How much deeper it counts than its parent's other runs."""

"""When a run must wrap up or stop. Pure: the loop asks at each turn boundary."""

from dataclasses import dataclass

from retinue.core.amounts import check_limits
from retinue.core.messages import Usage
from retinue.core.run import Reason

WRAP_UP_TEXT = (
    "You have reached your turn limit. Do not call any more tools: give your final answer now, "
    "from what you already know, and say what is left undone."
)

CLEANUP_S = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use; None means no limit."""

    max_turns: int | None = None
    grace_turns: int = 5
    """Turns after the wrap-up message before the run is stopped."""
    wall_s: float | None = None
    idle_s: float | None = None
    """Seconds without any event: no token, no tool progress."""
    strict_idle: bool = False
    """Only what is finished is a sign of life: a message, a tool call, a turn."""
    tool_s: float | None = None
    """Of one tool call."""
    tokens: int | None = None
    cost_usd: float | None = None
    cleanup_s: float = CLEANUP_S
    """For all features of a run together, to undo what they did."""

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the limits say after a turn."""

    wrap_up: bool = False
    stop: Reason | None = None


GO_ON = Verdict()


def judge_turn(limits: Limits, turns: int, usage: Usage, *, wrapping_up: bool) -> Verdict:
    """Decide after `turns` turns of a run that wants to go on."""
    if limits.tokens is not None and usage.total_tokens >= limits.tokens:
        return Verdict(stop=Reason.BUDGET)
    if limits.cost_usd is not None and usage.cost.total >= limits.cost_usd:
        return Verdict(stop=Reason.BUDGET)
    if limits.max_turns is None or turns < limits.max_turns:
        return GO_ON
    if not wrapping_up:
        return Verdict(wrap_up=True)
    if turns >= limits.max_turns + limits.grace_turns:
        return Verdict(stop=Reason.TURN_LIMIT)
    return GO_ON

"""Limits of a run: turns, time, tokens, cost. Pure functions; the loop calls them after each turn."""

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.amounts import check_limits
from retinue.core.definition import Definition
from retinue.core.messages import Usage
from retinue.core.run import Reason

WRAP_UP_TEXT = (
    "You have reached your turn limit. Do not call any more tools: give your final answer now, "
    "from what you already know, and say what is left undone."
)

TIMES = ("wall_s", "idle_s", "strict_idle", "tool_s")
ASKED = ("max_turns", *TIMES, "tokens", "cost_usd")
"""Fields of `Limits` that a request may set. A stored request has them as its own fields."""
CLEANUP_S = 5.0
ISOLATED_CLEANUP_S = 120.0
"""For runs in a copy of a repository: committing their changes takes longer than closing a file."""
Number = TypeVar("Number", int, float)


class Limits(Struct, frozen=True):
    """What one run may use. None means no limit."""

    max_turns: int | None = None
    grace_turns: int = 5
    """Turns after the wrap-up message before the run is stopped."""
    wall_s: float | None = None
    idle_s: float | None = None
    """Seconds without any event, such as a token or tool progress."""
    strict_idle: bool = False
    """Whether only a finished message, tool call or turn resets the idle timer."""
    tool_s: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    cleanup_s: float = CLEANUP_S
    """Seconds for all features of the run together to undo what they did."""

    def __post_init__(self) -> None:
        check_limits(self)

    def lower(self, tokens: int | None, cost_usd: float | None) -> "Limits":
        """Return limits that allow at most this many tokens and this much cost."""
        if tokens is None and cost_usd is None:
            return self
        return replace(self, tokens=find_smaller(self.tokens, tokens), cost_usd=find_smaller(self.cost_usd, cost_usd))

    def drop_clock(self) -> "Limits":
        """Return a copy without wall and idle time: the machine that executes the run applies those."""
        return replace(self, wall_s=None, idle_s=None)

    def bound_wait(self, timeout_s: float) -> float:
        """Return the longest time a call may wait without exceeding the idle or tool limit."""
        return min(timeout_s, *(0.9 * limit_s for limit_s in (self.idle_s, self.tool_s) if limit_s), timeout_s)


class GuardLimits(Struct, frozen=True):
    """What a prompt may cost before the user is told; None means any amount."""

    cost_usd: float | None = None
    model_calls: int | None = None


class Bounds(Struct, frozen=True):
    """Limits for all runs of one main agent."""

    max_concurrent: int = 4
    """Concurrent runs per parent."""
    max_depth: int = 4
    max_spawns: int = 200
    """Runs that one main prompt may start in total."""
    answer_s: float | None = 3600.0
    """How long a run waits for the answer to a question."""


class LimitVerdict(Struct, frozen=True):
    wrap_up: bool = False
    stop: Reason | None = None


GO_ON = LimitVerdict()


def judge_turn(limits: Limits, turns: int, usage: Usage, *, wrapping_up: bool) -> LimitVerdict:
    """Decide what happens after `turns` turns of a run that wants another turn."""
    if limits.tokens is not None and usage.total_tokens >= limits.tokens:
        return LimitVerdict(stop=Reason.BUDGET)
    if limits.cost_usd is not None and usage.cost.total >= limits.cost_usd:
        return LimitVerdict(stop=Reason.BUDGET)
    if limits.max_turns is None or turns < limits.max_turns:
        return GO_ON
    if not wrapping_up:
        return LimitVerdict(wrap_up=True)
    if turns >= limits.max_turns + limits.grace_turns:
        return LimitVerdict(stop=Reason.TURN_LIMIT)
    return GO_ON


def choose_limits(definition: Definition, asked: Limits, default: Limits, *, is_isolated: bool = False) -> Limits:
    """Combine the limits of the request, the definition and the default. 0 turns means no limit."""
    said = (asked.max_turns, definition.max_turns, default.max_turns)
    turns = next((number for number in said if number is not None), None)
    return replace(
        asked.lower(definition.max_tokens_total, definition.max_cost),
        max_turns=turns or None,
        wall_s=find_smaller(asked.wall_s, definition.max_seconds),
        grace_turns=default.grace_turns,
        cleanup_s=ISOLATED_CLEANUP_S if is_isolated else CLEANUP_S,
    )


def fill_limits(limits: Limits, definition: Definition) -> Limits:
    """Return the limits of a main agent; missing ones are taken from its definition."""
    if not definition.name:
        return limits
    return replace(
        limits,
        max_turns=limits.max_turns or definition.max_turns or None,
        wall_s=find_smaller(limits.wall_s, definition.max_seconds),
        tokens=limits.tokens or definition.max_tokens_total,
        cost_usd=limits.cost_usd or definition.max_cost,
    )


def find_smaller(one: Number | None, other: Number | None) -> Number | None:
    """Return the smaller of two limits. None means no limit."""
    return min((value for value in (one, other) if value is not None), default=None)

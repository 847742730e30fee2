"""When a run must wrap up or stop. Pure: the loop asks at each turn boundary."""

from dataclasses import dataclass, replace
from typing import TypeVar

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
"""What a request may say about limits. In its stored form these are fields of the request itself."""
CLEANUP_S = 5.0
ISOLATED_CLEANUP_S = 120.0
"""Saving the work of a whole repository takes longer than closing a file."""
Number = TypeVar("Number", int, float)


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

    def lower(self, tokens: int | None, cost_usd: float | None) -> "Limits":
        """The same with no more tokens and no more cost than these."""
        return replace(self, tokens=find_smaller(self.tokens, tokens), cost_usd=find_smaller(self.cost_usd, cost_usd))

    def drop_clock(self) -> "Limits":
        """Without those that count only where the run works, not while it waits for a place there."""
        return replace(self, wall_s=None, idle_s=None)

    def bound_wait(self, timeout_s: float) -> float:
        """How long a call of the run may wait: less than it may be silent, or spend in one call."""
        return min(timeout_s, *(0.9 * limit_s for limit_s in (self.idle_s, self.tool_s) if limit_s), timeout_s)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one main agent's crew may grow to."""

    max_concurrent: int = 4
    """Working runs of one parent."""
    max_depth: int = 4
    max_spawns: int = 200
    """Runs one main prompt may start in all."""


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """What the limits say after a turn."""

    wrap_up: bool = False
    stop: Reason | None = None


GO_ON = LimitVerdict()


def judge_turn(limits: Limits, turns: int, usage: Usage, *, wrapping_up: bool) -> LimitVerdict:
    """Decide after `turns` turns of a run that wants to go on."""
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
    """What the request settles, else what the file says, else the default; 0 turns is no limit."""
    said = (asked.max_turns, definition.max_turns, default.max_turns)
    turns = next((number for number in said if number is not None), None)
    return replace(
        asked.lower(definition.max_tokens_total, definition.max_cost),
        max_turns=turns or None,
        grace_turns=default.grace_turns,
        cleanup_s=ISOLATED_CLEANUP_S if is_isolated else CLEANUP_S,
    )


def fill_limits(limits: Limits, definition: Definition) -> Limits:
    """The limits of a main agent, with those of the file it runs as where they say nothing."""
    if not definition.name:
        return limits
    return replace(
        limits,
        max_turns=limits.max_turns or definition.max_turns or None,
        tokens=limits.tokens or definition.max_tokens_total,
        cost_usd=limits.cost_usd or definition.max_cost,
    )


def find_smaller(one: Number | None, other: Number | None) -> Number | None:
    """Of two limits what both allow."""
    return min((value for value in (one, other) if value is not None), default=None)

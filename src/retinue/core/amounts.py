"""Validate limits and tasks, from settings, agent files, calls, Python, RPC and extensions alike. Pure."""

from collections.abc import Iterable
from typing import Any

from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent, TextContent

MOST = 2**53 - 1
"""Larger numbers are rejected."""
_COUNT, _TURNS, _AMOUNT = "a whole number from 1", "a whole number from 0", "a number above 0"
_EXPECTED = {
    "tokens": _COUNT,
    "max_tokens_total": _COUNT,
    "max_turns": _TURNS,
    "grace_turns": _TURNS,
    "cost_usd": _AMOUNT,
    "max_cost": _AMOUNT,
    "wall_s": _AMOUNT,
    "idle_s": _AMOUNT,
    "tool_s": _AMOUNT,
}


def is_number(value: object, least: float, most: float = MOST) -> bool:
    """Whether this is a number in the range: not NaN, not infinite, not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_count(value: Any, least: int = 0, most: float = MOST) -> bool:
    """Whether this is a whole number in the range."""
    return is_number(value, least, most) and value == int(value)


def is_amount(value: Any) -> bool:
    return is_number(value, 0) and value > 0


def check_limits(holder: object) -> None:
    """Raises UsageError for the first field of this object that is not a valid limit; None means no limit."""
    for name, expected in _EXPECTED.items():
        if (value := getattr(holder, name, None)) is None:
            continue
        is_right = is_amount(value) if expected is _AMOUNT else is_count(value, 1 if expected is _COUNT else 0)
        if not is_right:
            raise UsageError(f"{name} is {quote(value)}: expected {expected}, or nothing for no limit")


def check_task(task: object) -> None:
    """Raises UsageError unless this is a non-empty text, or blocks with text or an image."""
    if isinstance(task, str):
        words = task
    elif isinstance(task, Iterable) and all(isinstance(block, TextContent | ImageContent) for block in task):
        words = "".join(block.text if isinstance(block, TextContent) else "image" for block in task)
    else:
        raise UsageError(f"the task is {quote(task)}: expected a text")
    if not words.strip():
        raise UsageError("the task is empty; describe what the agent should do")


def check_texts(**named: object) -> None:
    """Raises UsageError for the first value that is neither a string nor None."""
    for name, value in named.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name} is {quote(value)}: expected a text")

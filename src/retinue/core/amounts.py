"""What is a limit and what is a task: one check for settings, agent files, calls, Python, RPC and extensions. Pure."""

from collections.abc import Iterable
from typing import Any

from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent, TextContent

MOST = 2**53 - 1
"""What is more than this is no amount of anything."""
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
    """Whether this is a number in a range: neither NaN nor infinite, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_count(value: Any, least: int = 0, most: float = MOST) -> bool:
    """The same for a whole number."""
    return is_number(value, least, most) and value == int(value)


def is_amount(value: Any) -> bool:
    """Whether this is a number above 0."""
    return is_number(value, 0) and value > 0


def check_limits(holder: object) -> None:
    """Raise UsageError for the first limit that is none, among the fields of this object; None is no limit."""
    for name, expected in _EXPECTED.items():
        value = getattr(holder, name, None)
        is_right = is_amount(value) if expected is _AMOUNT else is_count(value, 1 if expected is _COUNT else 0)
        if value is not None and not is_right:
            raise UsageError(f"{name} is {quote(value)}: expected {expected}, or nothing for no limit")


def check_task(task: object) -> None:
    """Raise UsageError unless this is a text that says something, or blocks with one or with an image."""
    if isinstance(task, str):
        words = task
    elif isinstance(task, Iterable) and all(isinstance(block, TextContent | ImageContent) for block in task):
        words = "".join(block.text if isinstance(block, TextContent) else "image" for block in task)
    else:
        raise UsageError(f"the task is {quote(task)}: expected a text")
    if not words.strip():
        raise UsageError("the task is empty: say what is to be done")


def check_texts(**named: object) -> None:
    """Raise UsageError for the first of these that is neither a text nor None."""
    for name, value in named.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name} is {quote(value)}: expected a text")

"""Thinking levels: which levels a model supports, and their token budgets. Pure; adapters know the wire values."""

from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import ModelInfo

BUDGET_TOKENS: dict[ThinkingLevel, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384}
_ANSWER_TOKENS = 1024
"""Reserved for the answer if thinking and answer share one limit."""


def supported_levels(info: ModelInfo) -> list[ThinkingLevel]:
    """The levels a model supports, lowest first."""
    if not info.reasoning:
        return ["off"]
    levels = info.thinking_level_map
    return [
        level
        for level in THINKING_LEVELS
        if (levels.get(level) is not None if level in levels or level in ("xhigh", "max") else True)
    ]


def clamp_level(info: ModelInfo, level: ThinkingLevel) -> ThinkingLevel:
    """The level itself, or the next higher supported level, else the highest."""
    available = supported_levels(info)
    if level in available or not available:
        return level if available else "off"
    wanted = THINKING_LEVELS.index(level)
    return next((other for other in available if THINKING_LEVELS.index(other) > wanted), available[-1])


def can_disable(info: ModelInfo) -> bool:
    """Whether thinking can be switched off explicitly."""
    return info.thinking_level_map.get("off", "") is not None


def find_budget(info: ModelInfo, level: ThinkingLevel) -> int | None:
    """The user's setting for thinking tokens at a level; None if not set."""
    return info.thinking_budgets.get(level if level in BUDGET_TOKENS else "high")


def budget_tokens(info: ModelInfo, level: ThinkingLevel, ceiling: int) -> int:
    """Thinking tokens at a level, leaving room for an answer below the ceiling."""
    chosen = find_budget(info, level)
    wanted = BUDGET_TOKENS.get(level, BUDGET_TOKENS["high"]) if chosen is None else chosen
    return max(0, min(wanted, ceiling - _ANSWER_TOKENS))

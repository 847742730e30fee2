"""Format tokens, durations, percentages and money for display. Pure."""

import math

from retinue.core.messages import Usage


def count_tokens(usage: Usage) -> int:
    """The tokens that every list and total shows: input, output and cache writes.

    Cache reads are the same prefix in each request; they are shown separately, if at all.
    """
    return usage.input + usage.output + usage.cache_write


def format_tokens(count: int) -> str:
    """`999`, `33.8k`, `1.2M`."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def format_duration(ms: float) -> str:
    """`0.3s`, `5m 12s`, `1h 5m`."""
    seconds = max(0.0, ms / 1000)
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def format_cost(dollars: float) -> str:
    """`$0.042`; empty for 0."""
    if not dollars:
        return ""
    return f"${dollars:.3f}" if dollars < 1 else f"${dollars:.2f}"


def describe_input(usage: Usage, saved: float) -> str:
    """`8.0k cached, 11.6k uncached input, the cache saved $0.020`."""
    told = f"{format_tokens(usage.cache_read)} cached, {format_tokens(usage.input + usage.cache_write)} uncached input"
    if abs(saved) < 0.0005:
        return told
    return f"{told}, the cache {'saved' if saved > 0 else 'cost'} {format_cost(abs(saved))}"


def format_window(tokens: int) -> str:
    """The size of a context window: `200k`, `1M`, `1.5M`."""
    if tokens < 1000:
        return str(tokens)
    size, unit = (tokens / 1_000_000, "M") if tokens >= 1_000_000 else (tokens / 1000, "k")
    return f"{size:.1f}".removesuffix(".0") + unit


def count_percent(tokens: int, window: int | None) -> int | None:
    """The used part of a context window in percent; None if either number is unknown."""
    if not tokens or not window:
        return None
    return min(100, math.floor(100 * tokens / window + 0.5))


def count_noun(count: int, noun: str) -> str:
    """`1 tool use`, `2 tool uses`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_limit(provider: str, until_ms: int, now_ms: int) -> str:
    """Say until when the usage limit of a provider lasts, in local time; with the date unless that is today."""
    from datetime import datetime

    until, now = (datetime.fromtimestamp(moment_ms / 1000) for moment_ms in (until_ms, now_ms))
    date = "" if until.date() == now.date() else f" on {until:%Y-%m-%d}"
    return f"{provider}: limit until {until:%H:%M}{date}"

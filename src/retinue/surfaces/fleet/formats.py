"""Numbers as people read them: tokens, durations, shares. Pure; the tools and the screens use the same words."""

import math


def render_tokens(count: int) -> str:
    """`999 token`, `33.8k token`, `1.2M token`."""
    return f"{_shorten(count)} token"


def render_tokens_short(count: int) -> str:
    """`33.8k tok`, for a row of a list."""
    return f"{_shorten(count)} tok"


def render_duration(milliseconds: float) -> str:
    """`12.3s`, `5m 12s`, `1h 5m`."""
    seconds = max(0.0, milliseconds) / 1000
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


def render_turns(turns: int, max_turns: int | None = None) -> str:
    """`↻5`, or `↻5≤30` when there is a limit."""
    return f"↻{turns}≤{max_turns}" if max_turns else f"↻{turns}"


def render_window(tokens: int) -> str:
    """The size of a context window: `200k`, `1M`, `1.5M`."""
    if tokens < 1000:
        return str(tokens)
    size, unit = (tokens / 1_000_000, "M") if tokens >= 1_000_000 else (tokens / 1000, "k")
    return f"{size:.1f}".removesuffix(".0") + unit


def count_percent(tokens: int, window: int | None) -> int | None:
    """The share of a window that is used, in percent; None when either is not known."""
    if not tokens or not window:
        return None
    return min(100, math.floor(100 * tokens / window + 0.5))


def count_noun(count: int, noun: str) -> str:
    """`1 tool use`, `2 tool uses`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _shorten(count: int) -> str:
    if count < 1000:
        return str(count)
    # 999 950 would be shown as 1000.0k.
    if count < 999_950:
        return f"{count / 1000:.1f}k"
    return f"{count / 1_000_000:.1f}M"

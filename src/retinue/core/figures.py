"""Tokens, times and money in a few characters, for people. Pure."""


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
    """`$0.042`; nothing for nothing."""
    if not dollars:
        return ""
    return f"${dollars:.3f}" if dollars < 1 else f"${dollars:.2f}"

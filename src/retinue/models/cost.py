"""Compute the cost of a reply from its tokens. Must not know how a provider reports tokens."""

from msgspec import UNSET, UnsetType

from retinue.core.messages import Cost, Usage
from retinue.core.model import Price, PriceTier

_ABSURD_TOKENS = 1_000_000_000
"""No reply has this many tokens: a higher count is a provider's mistake."""


def count_tokens(value: object) -> int:
    """A token count as reported; 0 if it is absent, negative, absurd or not a number."""
    if type(value) is int:
        return value if 0 <= value <= _ABSURD_TOKENS else 0
    if isinstance(value, float) and value.is_integer():
        return count_tokens(int(value))
    return 0


def to_usage(
    price: Price,
    fresh: int,
    output: int,
    cache_read: int = 0,
    cache_write: int = 0,
    reasoning: int | UnsetType = UNSET,
) -> Usage:
    """Usage with its cost; `fresh` is the input that was neither read from nor written to a cache."""
    rates = _pick_rates(price, fresh + cache_read + cache_write)
    counts = (fresh, output, cache_read, cache_write)
    prices = (rates.input, rates.output, rates.cache_read, rates.cache_write)
    into, out, read, write = (rate * count / 1e6 for rate, count in zip(prices, counts, strict=True))
    return Usage(*counts, sum(counts), Cost(into, out, read, write, into + out + read + write), reasoning)


def _pick_rates(price: Price, input_tokens: int) -> Price | PriceTier:
    reached = [tier for tier in price.tiers if tier.input_tokens_above < input_tokens]
    return max(reached, key=lambda tier: tier.input_tokens_above, default=price)

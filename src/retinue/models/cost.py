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
    *,
    fresh: int,
    output: int,
    cache_read: int = 0,
    cache_write: int = 0,
    reasoning: int | UnsetType = UNSET,
) -> Usage:
    """Usage with its cost; `fresh` is the input that was neither read from nor written to a cache."""
    rates = _pick_rates(price, fresh + cache_read + cache_write)
    cost_input = rates.input * fresh / 1e6
    cost_output = rates.output * output / 1e6
    cost_read = rates.cache_read * cache_read / 1e6
    cost_write = rates.cache_write * cache_write / 1e6
    return Usage(
        fresh,
        output,
        cache_read,
        cache_write,
        fresh + output + cache_read + cache_write,
        Cost(cost_input, cost_output, cost_read, cost_write, cost_input + cost_output + cost_read + cost_write),
        reasoning,
    )


def _pick_rates(price: Price, input_tokens: int) -> Price | PriceTier:
    best: Price | PriceTier = price
    above = -1
    for tier in price.tiers:
        if above < tier.input_tokens_above < input_tokens:
            best, above = tier, tier.input_tokens_above
    return best

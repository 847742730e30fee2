import pytest
from msgspec import UNSET

from retinue.core.messages import Cost, Usage
from retinue.core.model import Price, PriceTier
from retinue.models.cost import count_tokens, to_usage

PRICE = Price(2, 8, 0.5, 2.5, (PriceTier(1000, 4, 16, 1, 5), PriceTier(2000, 6, 24, 2, 7)))


def test_each_kind_has_its_price():
    usage = to_usage(PRICE, fresh=500, output=100, cache_read=200, cache_write=300)
    cost = Cost(0.001, 0.0008, 0.0001, 0.00075, pytest.approx(0.00265))
    assert usage == Usage(500, 100, 200, 300, 1100, cost, UNSET)


@pytest.mark.parametrize(("fresh", "rate"), [(1000, 2), (1001, 4), (2000, 4), (2001, 6)])
def test_tier_holds_for_whole_request(fresh, rate):
    assert to_usage(PRICE, fresh=fresh, output=0).cost.input == pytest.approx(rate * fresh / 1e6)


def test_cached_input_counts_for_the_tier():
    assert to_usage(PRICE, fresh=1, output=1, cache_read=1999, cache_write=1).cost.output == pytest.approx(24e-6)


@pytest.mark.parametrize(
    ("reported", "tokens"),
    [(7, 7), (7.0, 7), (0, 0), (-1, 0), (10**15, 0), (None, 0), ("7", 0), (True, 0), (float("nan"), 0), ([], 0)],
)
def test_senseless_counts_are_zero(reported, tokens):
    assert count_tokens(reported) == tokens

from retinue.core.messages import UserMessage
from retinue.core.model import ModelRequest, Price, PriceTier
from retinue.engine.budget import bound_input, bound_price


def bound(text: str, system: str = "") -> int:
    return bound_input(ModelRequest(system=system, messages=[UserMessage(text, 0)]))


def test_each_byte_of_a_message_is_a_token() -> None:
    assert (bound("x" * 5000) - bound(""), bound("é" * 100) - bound("e" * 100)) == (5000, 100)
    assert bound("", "s" * 700) - bound("") == 700


def test_price_is_that_of_the_dearest_row() -> None:
    cost = Price(input=1, output=2, cache_read=0.5, cache_write=4, tiers=(PriceTier(0, input=3, output=8),))
    assert bound_price(cost, 1_000_000, 500_000) == 4 + 4

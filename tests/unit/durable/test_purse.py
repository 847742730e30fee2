from retinue.core.model import ModelInfo, Price
from retinue.durable.purse import fit_output

FREE = ModelInfo("p", "m", "api")
DEAR = ModelInfo("p", "m", "api", cost=Price(input=1_000_000, output=2_000_000))


def test_no_limit_leaves_wish():
    assert fit_output(DEAR, 100, 5_000, [None], [None]) == 5_000


def test_smallest_lease_decides():
    assert fit_output(FREE, 100, 5_000, [3_000, 1_100, None], [None]) == 1_000


def test_money_bounds_output():
    # A hundred tokens in cost a hundred dollars, and each one out two.
    assert fit_output(DEAR, 100, 5_000, [None], [700.0]) == 300


def test_spent_lease_covers_nothing():
    assert fit_output(DEAR, 100, 5_000, [50], [None]) == 0
    assert fit_output(DEAR, 100, 5_000, [None], [99.0]) == 0
    assert fit_output(FREE, 100, 5_000, [None], [-1.0]) == 0

import pytest

from retinue.core.messages import Cost, Usage
from retinue.core.run import Reason
from retinue.engine.limits import GO_ON, Limits, LimitVerdict, judge_turn


@pytest.mark.parametrize(
    ("turns", "wrapping_up", "verdict"),
    [
        (1, False, GO_ON),
        (2, False, GO_ON),
        (3, False, LimitVerdict(wrap_up=True)),
        (4, True, GO_ON),
        (5, True, LimitVerdict(stop=Reason.TURN_LIMIT)),
    ],
)
def test_turn_limit_wraps_up_then_stops(turns, wrapping_up, verdict):
    limits = Limits(max_turns=3, grace_turns=2)
    assert judge_turn(limits, turns, Usage(), wrapping_up=wrapping_up) == verdict


def test_no_limit_goes_on():
    verdict = judge_turn(Limits(), 10_000, Usage(total_tokens=10**9), wrapping_up=False)
    assert (verdict, verdict.wrap_up, verdict.stop) == (GO_ON, False, None)


@pytest.mark.parametrize(
    ("limits", "usage"),
    [
        (Limits(tokens=100), Usage(total_tokens=100)),
        (Limits(cost_usd=0.5), Usage(cost=Cost(total=0.5))),
    ],
)
def test_spent_budget_stops(limits, usage):
    assert judge_turn(limits, 1, usage, wrapping_up=False) == LimitVerdict(stop=Reason.BUDGET)

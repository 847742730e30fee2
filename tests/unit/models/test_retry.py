import pytest

from retinue.core.model import Failure
from retinue.models.retry import GiveUp, PlannedRetry, RetryPolicy, plan_retry, render_wait

POLICY = RetryPolicy()


def overloaded(**fields):
    return Failure("overloaded", "busy", retryable=True, **fields)


@pytest.mark.parametrize(("attempt", "ceiling_s"), [(1, 2), (2, 4), (3, 8)])
def test_pause_doubles_with_jitter(attempt, ceiling_s):
    pauses = [plan_retry(overloaded(), attempt, POLICY, lambda r=r: r) for r in (0.0, 0.5, 0.999)]
    assert pauses == [
        PlannedRetry(ceiling_s / 2),
        PlannedRetry(ceiling_s * 0.75),
        PlannedRetry(pytest.approx(ceiling_s * 0.9995)),
    ]


def test_pause_stays_below_the_cap():
    policy = RetryPolicy(max_retries=10_000, max_agent_delay_ms=7000)
    assert plan_retry(overloaded(), 9_999, policy, lambda: 1.0) == PlannedRetry(7)


def test_told_wait_is_honoured():
    plans = [plan_retry(overloaded(retry_after_s=2), 1, POLICY, lambda r=r: r) for r in (0.0, 1.0)]
    assert plans == [PlannedRetry(2), PlannedRetry(pytest.approx(2.2))]


def test_wait_beyond_the_cap_gives_up():
    plan = plan_retry(overloaded(retry_after_s=7200), 1, POLICY, lambda: 0.5)
    assert plan == GiveUp("the provider asks to wait 2 h; the limit is 60 s")


def test_last_attempt_gives_up():
    assert plan_retry(overloaded(), 4, POLICY, lambda: 0.5) == GiveUp("gave up after 4 attempts")


@pytest.mark.parametrize(
    ("failure", "policy"), [(Failure("auth", "no"), POLICY), (overloaded(), RetryPolicy(enabled=False))]
)
def test_final_failure_is_not_repeated(failure, policy):
    assert plan_retry(failure, 1, policy, lambda: 0.5) == GiveUp()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.25 s"), (60, "60 s"), (600, "10 min"), (1e9, "11574 days"), (7200, "2 h")]
)
def test_wait_is_readable(seconds, text):
    assert render_wait(seconds) == text

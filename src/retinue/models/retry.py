"""Decide whether to retry a failed reply, and after which delay. Pure: no clock, no sleep; random is injected."""

from collections.abc import Callable

from msgspec import Struct

from retinue.core.model import Failure


class RetryPolicy(Struct, frozen=True):
    """The `retry` section of the settings."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2000
    max_agent_delay_ms: int = 60_000


class PlannedRetry(Struct, frozen=True):
    delay_s: float


class GiveUp(Struct, frozen=True):
    """No further attempt; `reason` is empty if the failure's own message is enough."""

    reason: str = ""


def is_limit(failure: Failure, policy: RetryPolicy) -> bool:
    """Whether a provider refuses requests for longer than a retry waits: a usage limit, not a short pause."""
    told_s = failure.retry_after_s
    is_refusal = failure.kind in ("rate", "overloaded") and failure.retryable and policy.enabled
    return is_refusal and told_s is not None and told_s * 1000 > policy.max_agent_delay_ms


def plan_retry(
    failure: Failure, attempt: int, policy: RetryPolicy, random: Callable[[], float]
) -> PlannedRetry | GiveUp:
    """Decide what follows after attempt number `attempt` (from 1) failed. `random` returns [0, 1)."""
    if not policy.enabled or not failure.retryable:
        return GiveUp()
    if attempt > policy.max_retries:
        return GiveUp(f"gave up after {attempt} attempts")
    cap_s = policy.max_agent_delay_ms / 1000
    told_s = failure.retry_after_s
    if told_s is not None:
        if told_s > cap_s:
            return GiveUp(f"the provider asks to wait {render_wait(told_s)}; the limit is {render_wait(cap_s)}")
        # Never earlier than the provider asks; a little later, so that runs with the same wait do not return together.
        return PlannedRetry(min(told_s * (1 + 0.1 * random()), cap_s))
    return PlannedRetry((0.5 + 0.5 * random()) * backoff_s(attempt, policy))


def backoff_s(attempt: int, policy: RetryPolicy) -> float:
    """The longest delay after the given attempt: doubled each time, up to the cap."""
    # Beyond 2**20 every delay exceeds the cap; the bound keeps the power small.
    return min(policy.base_delay_ms * (1 << min(attempt - 1, 20)), policy.max_agent_delay_ms) / 1000


def render_wait(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"

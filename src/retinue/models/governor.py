"""Rate limiting per provider, shared by all runs: after a refusal all calls wait, then start one after the other.

The shared pause does not grow: each run doubles its own pauses. Costs one dictionary lookup while no provider is
paused. This file must not know wire formats or runs.
"""

from collections.abc import Callable

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.model import Failure
from retinue.models.retry import RetryPolicy, backoff_s, render_wait

_GAP_S = 0.05
_CROWD = 20
_CROWD_GAP_S = 0.01
_LONG_S = 1.0


class _Hold(Struct):
    until_s: float = 0.0
    epoch: int = 0
    """Counts how often the provider has set a wait time; places assigned before the last time are invalid."""
    admitted: int = 0
    """Number of callers that got a place in the queue since `until_s` was set."""
    shown: int = 0
    """The last epoch that was reported to a user."""


class Governor:
    """Lets calls to providers pass, or holds them until the provider may be called again."""

    def __init__(self, clock: Clock, policy: RetryPolicy | None = None) -> None:
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._holds: dict[str, _Hold] = {}

    def is_holding(self, provider: str) -> bool:
        """Whether a call to the provider must wait for `admit` first."""
        return provider in self._holds

    async def admit(self, provider: str, say: Callable[[str], None] | None = None) -> None:
        """Wait until the provider may be called. Cancelling gives up the place in the queue.

        The first caller with a long wait reports it with `say`.
        """
        while (hold := self._holds.get(provider)) is not None:
            epoch, place = hold.epoch, hold.admitted
            hold.admitted += 1
            wait_s = hold.until_s + _row_s(place) - self._clock.steady_s()
            if wait_s <= 0:
                return
            if say is not None and wait_s >= _LONG_S and hold.shown != epoch:
                hold.shown = epoch
                say(f"{provider} asked to wait; the next call follows in {render_wait(wait_s)}")
            await self._clock.sleep(wait_s)
            if hold.epoch == epoch and self._holds.get(provider) in (hold, None):
                return

    def record(self, provider: str, failure: Failure | None) -> None:
        """Record the result of a call; None means success."""
        if failure is None:
            if provider in self._holds:
                self._lift(provider)
        elif failure.kind in ("rate", "overloaded") and failure.retryable:
            self._extend(provider, failure)

    def _lift(self, provider: str) -> None:
        # A success of a call that was sent before the refusal proves nothing.
        if self._clock.steady_s() >= self._holds[provider].until_s:
            del self._holds[provider]

    def _extend(self, provider: str, failure: Failure) -> None:
        now_s = self._clock.steady_s()
        hold = self._holds.setdefault(provider, _Hold())
        told_s = failure.retry_after_s
        if told_s is None and now_s < hold.until_s:
            return  # calls that were in flight together are refused together
        # A run that retries its own call waits at least half of the first pause.
        pause_s = (
            backoff_s(1, self._policy) / 2 if told_s is None else min(told_s, self._policy.max_agent_delay_ms / 1000)
        )
        if now_s + pause_s > hold.until_s:
            hold.until_s = now_s + pause_s
            hold.epoch += told_s is not None
            hold.admitted = 0


def _row_s(place: int) -> float:
    """Seconds after the shared moment at which the caller in this place starts; later places have smaller gaps."""
    return place * _GAP_S if place <= _CROWD else _CROWD * _GAP_S + (place - _CROWD) * _CROWD_GAP_S

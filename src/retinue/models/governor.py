"""One back-off per provider, shared by all runs: after a refusal nobody calls before the same moment, then in a row.

Must not know wire formats or runs. Costs one dictionary look-up while no provider is holding anybody back.
"""

from collections.abc import Callable
from random import random as system_random

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.model import Failure
from retinue.models.retry import RetryPolicy, backoff_s

_GAP_S = 0.05
_CROWD = 20
_CROWD_GAP_S = 0.01


class _Hold(Struct):
    until_s: float = 0.0
    refusals: int = 0
    epoch: int = 0
    """Counts the moves of `until_s`: a place given out before the last one is worth nothing."""
    admitted: int = 0
    """How many were given a place in the row since then."""


class Governor:
    """Lets calls pass to providers, or keeps them until the provider may be asked again."""

    def __init__(
        self,
        clock: Clock,
        policy: RetryPolicy | None = None,
        random: Callable[[], float] = system_random,
    ) -> None:
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._random = random
        self._holds: dict[str, _Hold] = {}

    def is_holding(self, provider: str) -> bool:
        """Whether a call to the provider would have to ask `admit` first."""
        return provider in self._holds

    async def admit(self, provider: str) -> None:
        """Return when the provider may be called; cancelling gives the place up."""
        while (hold := self._holds.get(provider)) is not None:
            epoch, place = hold.epoch, hold.admitted
            hold.admitted += 1
            wait_s = hold.until_s + _row_s(place) - self._clock.steady_s()
            if wait_s <= 0:
                return
            await self._clock.sleep(wait_s)
            if hold.epoch == epoch and self._holds.get(provider) in (hold, None):
                return

    def record(self, provider: str, failure: Failure | None) -> None:
        """Report how a call went; None for an answer."""
        if failure is None:
            if provider in self._holds:
                self._lift(provider)
        elif failure.kind in ("rate", "overloaded") and failure.retryable:
            self._extend(provider, failure)

    def _lift(self, provider: str) -> None:
        # An answer to a call that was sent before the refusal proves nothing.
        if self._clock.steady_s() >= self._holds[provider].until_s:
            del self._holds[provider]

    def _extend(self, provider: str, failure: Failure) -> None:
        now_s = self._clock.steady_s()
        hold = self._holds.setdefault(provider, _Hold())
        # Calls that were in flight together are refused together: only the first of them counts and sets the moment.
        is_first = now_s >= hold.until_s
        if is_first:
            hold.refusals += 1
        if failure.retry_after_s is not None:
            pause_s = min(failure.retry_after_s, self._policy.max_agent_delay_ms / 1000)
        elif is_first:
            pause_s = backoff_s(hold.refusals, self._policy) * (0.5 + 0.5 * self._random())
        else:
            return
        if now_s + pause_s > hold.until_s:
            hold.until_s = now_s + pause_s
            hold.epoch += 1
            hold.admitted = 0


def _row_s(place: int) -> float:
    """How long after the shared moment the caller in this place goes: one by one, then denser."""
    return place * _GAP_S if place <= _CROWD else _CROWD * _GAP_S + (place - _CROWD) * _CROWD_GAP_S

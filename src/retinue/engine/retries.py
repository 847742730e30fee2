"""The attempts at one prompt: how many have failed, what is told about them, and what they came to.

Decides nothing: whether another one makes sense is known elsewhere.
"""

from collections.abc import Callable
from typing import NamedTuple

from retinue.core.events import AttemptEnded, AttemptStarted, Event, RetryEnded, RetryScheduled
from retinue.core.messages import Usage
from retinue.core.run import Reason, Status
from retinue.engine.loop import Ending


class Attempts:
    """Counts those of one run, and tells of them."""

    def __init__(self, run_id: str, publish: Callable[[Event], None]) -> None:
        self._run_id = run_id
        self._publish = publish
        self.failed = 0
        """Since the last reply; after each of them another one was to follow."""
        self.is_open = False
        """Kept by whoever sees all events of the run."""

    @property
    def is_waiting(self) -> bool:
        """Whether another one is to follow."""
        return self.failed > 0 and not self.is_open

    def begin(self) -> None:
        """Tell that one begins."""
        self._publish(AttemptStarted(run_id=self._run_id, attempt=self.failed + 1))

    def end(self) -> None:
        """Tell that one is over, and that no other follows for now."""
        self._publish(AttemptEnded(run_id=self._run_id))

    def schedule(self, delay_s: float, most: int, error: str) -> None:
        """Tell that one has failed and when the next follows."""
        self.failed += 1
        self._publish(AttemptEnded(run_id=self._run_id, will_retry=True))
        delay_ms = round(delay_s * 1000)
        self._publish(
            RetryScheduled(run_id=self._run_id, attempt=self.failed, max_attempts=most, delay_ms=delay_ms, error=error)
        )

    def succeed(self) -> None:
        """Tell that trying again has helped, if it was needed."""
        if self.failed:
            attempt, self.failed = self.failed, 0
            self._publish(RetryEnded(run_id=self._run_id, success=True, attempt=attempt))

    def give_up(self, error: str) -> None:
        """Tell that trying again has not helped, if it was tried."""
        if self.failed:
            self._publish(RetryEnded(run_id=self._run_id, success=False, attempt=self.failed, error=error))

    def cut_off(self) -> None:
        """Tell the end of whatever a stop came in between."""
        if self.is_open:
            self.end()
        else:
            self.give_up("cancelled")


_COMPLETED = (Reason.DONE, Reason.LENGTH, Reason.TURN_LIMIT_WRAPPED)


class Past(NamedTuple):
    """What a run had used before its present conversation: each counts from zero, the outcome counts them all."""

    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0


def judge_ending(ending: Ending) -> tuple[Status, str]:
    """Where that leaves the run, and what went wrong."""
    reason = ending.reason
    if reason is Reason.LENGTH and ending.reply is not None and not ending.reply.text.strip():
        return Status.FAILED, "the model's output limit was reached before it had said anything"
    if reason in _COMPLETED:
        return Status.COMPLETED, ending.error
    if reason in (Reason.ERROR, Reason.CRASH):
        return Status.FAILED, ending.error
    return Status.INTERRUPTED if reason is Reason.PARENT else Status.STOPPED, ending.error

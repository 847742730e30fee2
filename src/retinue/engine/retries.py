"""Counts the attempts at one prompt, publishes them, and maps the ending to a status.

It does not decide whether to retry; `plan_retry` does.
"""

from collections.abc import Callable
from typing import NamedTuple

from retinue.core.events import AttemptEnded, AttemptStarted, Event, RetryEnded, RetryScheduled
from retinue.core.messages import Usage
from retinue.core.run import Reason, Status
from retinue.engine.loop import Ending


class Attempts:
    """Counts and publishes the attempts of one run."""

    def __init__(self, run_id: str, publish: Callable[[Event], None]) -> None:
        self._run_id = run_id
        self._publish = publish
        self.failed = 0
        """Failed attempts since the last reply."""
        self.is_open = False
        """Set by the run, which sees all events."""

    @property
    def is_waiting(self) -> bool:
        return self.failed > 0 and not self.is_open

    def begin(self) -> None:
        self._publish(AttemptStarted(run_id=self._run_id, attempt=self.failed + 1))

    def end(self) -> None:
        self._publish(AttemptEnded(run_id=self._run_id))

    def schedule(self, delay_s: float, most: int, error: str) -> None:
        """Publish that an attempt failed and when the next one starts."""
        self.failed += 1
        self._publish(AttemptEnded(run_id=self._run_id, will_retry=True))
        delay_ms = round(delay_s * 1000)
        self._publish(
            RetryScheduled(run_id=self._run_id, attempt=self.failed, max_attempts=most, delay_ms=delay_ms, error=error)
        )

    def succeed(self) -> None:
        """Publish that a retry succeeded, if there was one."""
        if self.failed:
            attempt, self.failed = self.failed, 0
            self._publish(RetryEnded(run_id=self._run_id, success=True, attempt=attempt))

    def give_up(self, error: str) -> None:
        """Publish that the retries failed, if there were any."""
        if self.failed:
            self._publish(RetryEnded(run_id=self._run_id, success=False, attempt=self.failed, error=error))

    def cut_off(self) -> None:
        """Publish the end of an attempt or of a retry delay that was cancelled."""
        if self.is_open:
            self.end()
        else:
            self.give_up("cancelled")


_COMPLETED = (Reason.DONE, Reason.LENGTH, Reason.TURN_LIMIT_WRAPPED)


class EarlierUsage(NamedTuple):
    """What a run used in earlier conversations; each counts from zero, and the outcome is the sum."""

    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0


def judge_ending(ending: Ending) -> tuple[Status, str]:
    """Return the status and the error of a run that ended this way."""
    reason = ending.reason
    if reason is Reason.LENGTH and ending.reply is not None and not ending.reply.text.strip():
        return Status.FAILED, "the model's output limit was reached before it had said anything"
    if reason in _COMPLETED:
        return Status.COMPLETED, ending.error
    if reason in (Reason.ERROR, Reason.CRASH):
        return Status.FAILED, ending.error
    is_cut = reason in (Reason.PARENT, Reason.LIMIT)
    return Status.INTERRUPTED if is_cut else Status.STOPPED, ending.error

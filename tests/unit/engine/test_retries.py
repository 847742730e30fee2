from retinue.core.events import AttemptEnded, AttemptStarted, Event, RetryEnded
from retinue.engine.retries import Attempts


def test_cut_off_before_the_first_attempt_is_silent() -> None:
    told: list[Event] = []
    attempts = Attempts("r", told.append)
    assert not attempts.is_waiting
    attempts.cut_off()
    assert told == []


def test_cut_off_while_waiting_ends_the_retry() -> None:
    told: list[Event] = []
    attempts = Attempts("r", told.append)
    attempts.begin()
    attempts.schedule(1.0, 3, "busy")
    assert attempts.is_waiting
    attempts.cut_off()
    assert told[0] == AttemptStarted(run_id="r", attempt=1)
    assert told[1] == AttemptEnded(run_id="r", will_retry=True)
    assert told[3:] == [RetryEnded(run_id="r", success=False, attempt=1, error="cancelled")]

"""From why a conversation ended to what its run came to. Pure."""

from typing import NamedTuple

from retinue.core.messages import Usage
from retinue.core.run import Reason, Status
from retinue.engine.loop import Ending

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

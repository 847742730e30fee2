"""Facts about a Run, frozen and serialisable: the only way anything outside the engine learns anything.

Names are in the past tense. Events marked *live* are shown but never stored. This file must not know who listens.
"""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from retinue.core.messages import AssistantMessage, Message, ThinkingLevel, ToolResultMessage, Usage, UserContent
from retinue.core.model import Delta
from retinue.core.run import Grant, Outcome, Question, Run


class _Fact(Struct, frozen=True, tag_field="type", kw_only=True, rename="camel"):
    run_id: str


class RunQueued(_Fact, frozen=True, tag=True):
    """A run was accepted; it starts when there is room."""

    run: Run
    request: dict[str, Any]
    """All it takes to start it, also after a crash."""


class RunStarted(_Fact, frozen=True, tag=True):
    """A run begins to work, for the first time or again."""

    at_ms: int = 0
    grant: Grant | None = None
    """What it may use."""
    is_detached: bool = False
    """Whoever waited for it does not any more: its end is told like that of a run in the background."""


class RunPlaced(_Fact, frozen=True, tag=True):
    """Live. A run is worked on by somebody else's hands now: a worker of this name; empty while it waits for one."""

    worker: str = ""

    @property
    def machine(self) -> str:
        """The same for whoever shows it."""
        return self.worker


class RunProgressed(_Fact, frozen=True, tag=True):
    """Live. How far a run is that a run on another machine has started: all figures, so that the last word counts."""

    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = Usage()
    context_tokens: int = 0
    activity: str = ""


class AttemptStarted(_Fact, frozen=True, tag=True):
    """Live. The loop begins, for the first time or after a failure."""

    attempt: int = 1


class AttemptEnded(_Fact, frozen=True, tag=True):
    """Live. The loop came back, well or not; the run may go on with another attempt."""

    will_retry: bool = False


class RunFinished(_Fact, frozen=True, tag=True):
    """The run is in its final state."""

    outcome: Outcome
    at_ms: int = 0


class RunRead(_Fact, frozen=True, tag=True):
    """The result of a run reached whoever started it: nobody needs to be told any more."""


class RunForgotten(_Fact, frozen=True, tag=True):
    """A finished run is no longer listed; its files stay."""


class RunSteered(_Fact, frozen=True, tag=True):
    """Something was said to a run while it was queued or working."""

    text: str


class TurnStarted(_Fact, frozen=True, tag=True):
    """A model reply is about to be asked for."""

    turn: int


class TurnFinished(_Fact, frozen=True, tag=True):
    """A reply and the results of its tool calls are complete."""

    turn: int
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class MessageStarted(_Fact, frozen=True, tag=True):
    """Live. A reply begins to arrive; the message is empty and pending."""

    message: AssistantMessage


class MessageDelta(_Fact, frozen=True, tag=True):
    """Live. A piece of the reply."""

    delta: Delta
    usage: Usage


class MessageFinished(_Fact, frozen=True, tag=True):
    """A message is complete and part of the conversation."""

    message: Message


class ToolStarted(_Fact, frozen=True, tag=True):
    """A tool call begins."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class CallChanged(_Fact, frozen=True, tag=True):
    """A tool call is made with other arguments than the model's: hooks have changed them."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    """What it is really made with."""
    by: list[str]
    """The hooks, in their order."""


class ToolProgress(_Fact, frozen=True, tag=True):
    """Live. What a tool has so far."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    content: list[UserContent]
    details: Any = UNSET


class ToolFinished(_Fact, frozen=True, tag=True):
    """A tool call is over; its result becomes a message in source order."""

    result: ToolResultMessage
    duration_ms: int | None = None
    """None when the tool did not run at all."""
    in_order: bool = True
    """All earlier calls of the same reply have finished, so that the result can take its place in the session."""


class RetryScheduled(_Fact, frozen=True, tag=True):
    """Live. A failed attempt will be repeated after a pause."""

    attempt: int
    max_attempts: int
    delay_ms: int
    error: str


class RetryEnded(_Fact, frozen=True, tag=True):
    """Live. The repeated attempt succeeded, or no further one will be made."""

    success: bool
    attempt: int
    error: str = ""


class Steered(_Fact, frozen=True, tag=True):
    """Live. What waits to be said to the run, in full, has changed."""

    steering: list[str]
    follow_up: list[str]


class CompactionStarted(_Fact, frozen=True, tag=True):
    """Live. The context is about to be summarised."""

    reason: Literal["manual", "threshold", "overflow"]


class Compacted(_Fact, frozen=True, tag=True):
    """A compaction was tried; without `result` it failed and the context is unchanged."""

    reason: Literal["manual", "threshold", "overflow"]
    result: dict[str, Any] | None = None
    aborted: bool = False
    will_retry: bool = False
    error: str = ""


class EntryAppended(_Fact, frozen=True, tag=True):
    """Live. The session got an entry that is no message; the entry is as stored."""

    entry: dict[str, Any]


class ModelChanged(_Fact, frozen=True, tag=True):
    """Live. Another model was chosen; it is asked from the next turn on."""

    provider: str
    model_id: str


class ThinkingChanged(_Fact, frozen=True, tag=True):
    """Live. Another thinking level was chosen, or the model has no other."""

    level: ThinkingLevel


class SessionRenamed(_Fact, frozen=True, tag=True):
    """Live. The session got another name; an empty one takes it away."""

    name: str


class Warned(_Fact, frozen=True, tag=True):
    """Live. Something a person should know and the model need not."""

    text: str


class Asked(_Fact, frozen=True, tag=True):
    """A run waits for a person's decision."""

    question: Question


class Answered(_Fact, frozen=True, tag=True):
    """A question is settled; an empty answer takes it back unanswered."""

    question_id: str
    answer: str
    by: Literal["face", "policy", "nobody"] = "face"


class SchedulerReady(_Fact, frozen=True, tag=True):
    """Live. Schedules of the main session, of which there are some, fire from now on; it belongs to no run."""

    session_id: str
    job_count: int


class ScheduleChanged(_Fact, frozen=True, tag=True):
    """Live. Something happened to a scheduled job; it belongs to no run."""

    change: Literal["added", "updated", "removed", "fired", "error"]
    job_id: str
    job: dict[str, Any] | None = None
    """As stored, after the change."""
    agent_id: str = ""
    """The run that was started."""
    error: str = ""
    note: str = ""


Event: TypeAlias = (
    RunQueued
    | RunStarted
    | RunPlaced
    | RunProgressed
    | AttemptStarted
    | AttemptEnded
    | RunFinished
    | RunRead
    | RunForgotten
    | RunSteered
    | TurnStarted
    | TurnFinished
    | MessageStarted
    | MessageDelta
    | MessageFinished
    | ToolStarted
    | CallChanged
    | ToolProgress
    | ToolFinished
    | RetryScheduled
    | RetryEnded
    | Steered
    | CompactionStarted
    | Compacted
    | EntryAppended
    | ModelChanged
    | ThinkingChanged
    | SessionRenamed
    | Warned
    | Asked
    | Answered
    | SchedulerReady
    | ScheduleChanged
)

"""Events: frozen, serialisable facts about a run. Everything outside the engine learns only from them.

Names are in the past tense. Events marked *live* are shown but never stored. This file must not know who listens.
"""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from retinue.core.merge_report import MergeStep
from retinue.core.messages import AssistantMessage, Message, ThinkingLevel, ToolResultMessage, Usage, UserContent
from retinue.core.model import Delta
from retinue.core.run import Grant, Outcome, Question, Run


class _Fact(Struct, frozen=True, tag_field="type", kw_only=True, rename="camel"):
    run_id: str


class RunQueued(_Fact, frozen=True, tag=True):
    """A run was accepted; it starts when there is capacity."""

    run: Run
    request: dict[str, Any]
    """Everything needed to start it, even after a crash."""


class RunStarted(_Fact, frozen=True, tag=True):
    """A run started, for the first time or again."""

    at_ms: int = 0
    grant: Grant | None = None
    """Its rights."""
    is_detached: bool = False
    """The caller no longer waits for it: its end is reported like that of a background run."""


class RunPlaced(_Fact, frozen=True, tag=True):
    """Live. Another machine executes the run: the worker with this name; empty while it waits for one."""

    worker: str = ""

    @property
    def machine(self) -> str:
        return self.worker


class BranchesMerged(_Fact, frozen=True, tag=True):
    """Live. A merge queue made a step."""

    step: MergeStep


class RunProgressed(_Fact, frozen=True, tag=True):
    """Live. Progress of a run started on another machine. All numbers are totals, so that the last event is enough."""

    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = Usage()
    context_tokens: int = 0
    activity: str = ""


class AttemptStarted(_Fact, frozen=True, tag=True):
    """Live. The loop starts, for the first time or after a failure."""

    attempt: int = 1


class AttemptEnded(_Fact, frozen=True, tag=True):
    """Live. The loop ended, with or without success; another attempt may follow."""

    will_retry: bool = False


class RunPaused(_Fact, frozen=True, tag=True):
    """A run waits because a usage limit of a provider is reached."""

    until_ms: int
    """When the provider can be asked again."""
    provider: str
    gate: str = ""
    """The name of the limit: the provider and a hash of the key."""


class RunContinued(_Fact, frozen=True, tag=True):
    """A run that waited for a usage limit works again."""


class RunFinished(_Fact, frozen=True, tag=True):
    outcome: Outcome
    at_ms: int = 0


class RunRead(_Fact, frozen=True, tag=True):
    """The caller received the result of a run: no notification is needed."""


class RunForgotten(_Fact, frozen=True, tag=True):
    """A finished run is no longer listed; its files are kept."""


class RunSteered(_Fact, frozen=True, tag=True):
    """A message was sent to a run while it was queued or running."""

    text: str


class RunAsked(_Fact, frozen=True, tag=True):
    """A run asks the agent that started it, and waits."""

    question: Question
    at_ms: int = 0


class RunAnswered(_Fact, frozen=True, tag=True):
    """A question of a run is answered or closed; `withdrawn`: the run has ended, so that nobody needs the answer."""

    question_id: str
    answer: str = ""
    by: Literal["parent", "user", "nobody", "timeout", "withdrawn"] = "parent"


class TurnStarted(_Fact, frozen=True, tag=True):
    """A model reply is about to be requested."""

    turn: int


class TurnFinished(_Fact, frozen=True, tag=True):
    """A reply and the results of its tool calls are complete."""

    turn: int
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class MessageStarted(_Fact, frozen=True, tag=True):
    """Live. A reply starts to arrive; the message is empty and pending."""

    message: AssistantMessage


class MessageDelta(_Fact, frozen=True, tag=True):
    """Live. A piece of the reply."""

    delta: Delta
    usage: Usage


class MessageFinished(_Fact, frozen=True, tag=True):
    """A message is complete and part of the conversation."""

    message: Message


class ToolStarted(_Fact, frozen=True, tag=True):
    call_id: str
    name: str
    arguments: dict[str, Any]


class CallChanged(_Fact, frozen=True, tag=True):
    """Hooks changed the arguments of a tool call."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    """The changed arguments."""
    by: list[str]
    """The hooks, in order."""


class ToolProgress(_Fact, frozen=True, tag=True):
    """Live. The output of a tool so far."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    content: list[UserContent]
    details: Any = UNSET


class ToolFinished(_Fact, frozen=True, tag=True):
    """A tool call ended; its result becomes a message in the order of the calls."""

    result: ToolResultMessage
    duration_ms: int | None = None
    """None if the tool did not run."""
    in_order: bool = True
    """All earlier calls of the same reply have finished, so the result can be written to the session."""


class RetryScheduled(_Fact, frozen=True, tag=True):
    """Live. A failed attempt will be repeated after a delay."""

    attempt: int
    max_attempts: int
    delay_ms: int
    error: str


class RetryEnded(_Fact, frozen=True, tag=True):
    """Live. The repeated attempt succeeded, or no further attempt follows."""

    success: bool
    attempt: int
    error: str = ""


class Steered(_Fact, frozen=True, tag=True):
    """Live. The queue of messages to the run changed; the lists are complete."""

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
    """Live. An entry other than a message was added to the session, in stored form."""

    entry: dict[str, Any]


class ModelChanged(_Fact, frozen=True, tag=True):
    """Live. Another model was chosen, used from the next turn."""

    provider: str
    model_id: str


class ThinkingChanged(_Fact, frozen=True, tag=True):
    """Live. The thinking level was changed, by choice or because the model does not support the old one."""

    level: ThinkingLevel


class SessionRenamed(_Fact, frozen=True, tag=True):
    """Live. The session was renamed; an empty name removes the name."""

    name: str


class Warned(_Fact, frozen=True, tag=True):
    """Live. A warning for the user that the model does not need."""

    text: str


class Asked(_Fact, frozen=True, tag=True):
    """A run waits for the user's decision."""

    question: Question


class Answered(_Fact, frozen=True, tag=True):
    """A question was answered; an empty answer withdraws it."""

    question_id: str
    answer: str
    by: Literal["face", "policy", "nobody"] = "face"


class SchedulerReady(_Fact, frozen=True, tag=True):
    """Live. The schedules of the main session, at least one, are active from now on. Belongs to no run."""

    session_id: str
    job_count: int


class ScheduleChanged(_Fact, frozen=True, tag=True):
    """Live. A scheduled job changed or fired. Belongs to no run."""

    change: Literal["added", "updated", "removed", "fired", "error"]
    job_id: str
    job: dict[str, Any] | None = None
    """In stored form, after the change."""
    agent_id: str = ""
    error: str = ""
    note: str = ""


Event: TypeAlias = (
    RunQueued
    | RunStarted
    | RunPlaced
    | BranchesMerged
    | RunProgressed
    | AttemptStarted
    | AttemptEnded
    | RunPaused
    | RunContinued
    | RunFinished
    | RunRead
    | RunForgotten
    | RunSteered
    | RunAsked
    | RunAnswered
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

"""State of the main screen, updated by `apply(state, event)`. Must not know widgets.

Runs of subagents are not part of it: the Manager keeps their state, and widgets read it by a timer.
"""

from dataclasses import dataclass, field
from typing import Literal

from retinue.core import events as ev
from retinue.core.fold import find_summary_usage
from retinue.core.messages import AssistantMessage, Usage
from retinue.core.run import Outcome, Question
from retinue.ui.conversation_blocks import ConversationBlocks

Phase = Literal["idle", "thinking", "answering", "working", "compacting", "waiting"]


@dataclass(slots=True)
class State:
    """What the screen shows of the main agent."""

    run_id: str
    talk: ConversationBlocks
    phase: Phase = "idle"
    """`waiting`: it has answered and waits for its subagents or for a retry."""
    is_resting: bool = False
    """Whether the agent was idle when the compaction started."""
    tool: str = ""
    """The running tool in the phase `working`."""
    steering: list[str] = field(default_factory=list)
    follow_up: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    """Of the main agent alone."""
    context_tokens: int = 0
    """Context tokens of the last reply; 0 if unknown."""
    turns: int = 0
    rounds: int = 0
    """The number of replies that called tools."""
    started_ms: int = 0
    """When the current work started."""
    outcome: Outcome | None = None
    """How the last work ended."""

    @property
    def is_busy(self) -> bool:
        """Whether the main agent works or waits for something it has started."""
        return self.phase != "idle"


def apply(state: State, event: ev.Event) -> None:
    """Update the state with an event."""
    if isinstance(event, ev.Asked | ev.RunAsked):
        # Questions that only the user can answer come first.
        state.questions = sorted([*state.questions, event.question], key=lambda question: question.kind == "ask")
        return
    if isinstance(event, ev.Answered | ev.RunAnswered):
        state.questions = [question for question in state.questions if question.id != event.question_id]
        return
    if event.run_id != state.run_id:
        if isinstance(event, ev.Warned):
            state.talk.note(event.text, "warning")
        return
    state.talk.apply(event)
    _follow(state, event)


def _follow(state: State, event: ev.Event) -> None:
    match event:
        case ev.RunStarted():
            state.phase, state.turns, state.started_ms = "thinking", 0, event.at_ms
        case ev.RunFinished():
            state.phase, state.tool, state.is_resting = "idle", "", True
            state.outcome = event.outcome
        case ev.AttemptEnded():
            state.phase = "waiting"
        case ev.AttemptStarted():
            state.phase = "thinking"
        case ev.TurnStarted():
            state.phase, state.turns = "thinking", event.turn
        case ev.MessageDelta() if event.delta.type == "text_delta":
            state.phase = "answering"
        case ev.ToolStarted():
            state.phase, state.tool = "working", event.name
        case ev.ToolFinished():
            state.phase, state.tool = "thinking", ""
            state.usage += event.result.usage or Usage()
        case ev.CompactionStarted():
            state.is_resting = state.phase == "idle"
            state.phase = "compacting"
        case ev.Compacted():
            # No other event says that a compaction requested by the user is done.
            state.phase = "idle" if state.is_resting and not event.will_retry else "thinking"
            state.context_tokens = 0 if event.result is not None else state.context_tokens
            state.usage += find_summary_usage(event)
        case ev.Steered():
            state.steering, state.follow_up = list(event.steering), list(event.follow_up)
        case ev.TurnFinished():
            state.rounds += bool(event.tool_results)
        case ev.MessageFinished(message=AssistantMessage() as message):
            state.usage += message.usage
            state.context_tokens = message.usage.total_tokens or state.context_tokens
        case _:
            pass

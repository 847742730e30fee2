import pytest

from retinue.core import events as ev
from retinue.core.messages import AssistantMessage, Cost, TextContent, ToolResultMessage, Usage
from retinue.core.model import Delta
from retinue.core.run import Outcome, Question, Reason, Status
from retinue.ui.conversation_blocks import ConversationBlocks
from retinue.ui.state import State, apply

QUESTION = Question(id="q", run_id="child", title="Run bash?")
RESULT = ToolResultMessage("c1", "read", [TextContent("one")], False, 3)
TEXT = ev.MessageDelta(run_id="r", delta=Delta("text_delta", 0, delta="a"), usage=Usage())
DONE = ev.RunFinished(run_id="r", outcome=Outcome(Status.COMPLETED, Reason.DONE))


def play(*events):
    state = State("r", ConversationBlocks("r"))
    for event in events:
        apply(state, event)
    return state


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (ev.RunStarted(run_id="r", at_ms=5), "thinking"),
        (TEXT, "answering"),
        (ev.ToolStarted(run_id="r", call_id="c1", name="read", arguments={}), "working"),
        (ev.ToolFinished(run_id="r", result=RESULT), "thinking"),
        (ev.CompactionStarted(run_id="r", reason="manual"), "compacting"),
        (ev.AttemptEnded(run_id="r"), "waiting"),
        (DONE, "idle"),
    ],
)
def test_phase_follows_events(event, phase):
    assert play(ev.RunStarted(run_id="r", at_ms=5), event).phase == phase


def test_other_runs_leave_phase_alone():
    state = play(ev.RunStarted(run_id="child", at_ms=5), ev.Warned(run_id="child", text="careful"))
    assert (state.is_busy, [block.text for block in state.talk.blocks]) == (False, ["careful"])


def test_questions_wait_until_answered():
    state = play(ev.Asked(run_id="child", question=QUESTION))
    assert state.questions == [QUESTION]
    apply(state, ev.Answered(run_id="child", question_id="q", answer="deny"))
    assert state.questions == []


def test_queue_is_as_told():
    state = play(ev.Steered(run_id="r", steering=["a"], follow_up=["b", "c"]))
    assert (state.steering, state.follow_up) == (["a"], ["b", "c"])


def test_usage_adds_up():
    usage = Usage(10, 5, total_tokens=15, cost=Cost(total=0.5))
    message = AssistantMessage([TextContent("a")], "api", "p", "m", usage, "stop", 2)
    state = play(*[ev.MessageFinished(run_id="r", message=message)] * 2)
    assert (state.usage.input, state.usage.cost.total, state.context_tokens) == (20, 1.0, 15)
    apply(state, ev.Compacted(run_id="r", reason="manual", result={"summary": "s", "usage": usage}))
    assert (state.usage.input, state.context_tokens) == (30, 0)


def test_own_summary_ends_at_rest():
    state = State("m", ConversationBlocks("m"))
    apply(state, ev.CompactionStarted(run_id="m", reason="manual"))
    assert state.phase == "compacting"
    apply(state, ev.Compacted(run_id="m", reason="manual", aborted=True))
    assert (state.phase, state.is_busy) == ("idle", False)


def test_summary_amid_work_goes_on():
    state = State("m", ConversationBlocks("m"))
    for event in (ev.TurnStarted(run_id="m", turn=1), ev.CompactionStarted(run_id="m", reason="threshold")):
        apply(state, event)
    apply(state, ev.Compacted(run_id="m", reason="threshold", aborted=True))
    assert state.phase == "thinking"

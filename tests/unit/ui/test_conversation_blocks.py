from retinue.core import events as ev
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import Delta
from retinue.ui.blocks import CommandBlock, NoteBlock, ReplyBlock, ReportBlock, SummaryBlock, ToolBlock, UserBlock
from retinue.ui.conversation_blocks import ConversationBlocks

CALL = ToolCall("c1", "read", {"path": "a"})
RESULT = ToolResultMessage("c1", "read", [TextContent("one")], False, 3, details={"lines": 1})


def reply(*content, stop="stop", **more):
    return AssistantMessage(list(content), "api", "provider", "m", Usage(1, 2), stop, 2, **more)


def strip(talk):
    for block in talk.blocks:
        block.version = 0
    return talk.blocks


def play(*events, run_id="r"):
    talk = ConversationBlocks(run_id)
    for event in events:
        talk.apply(event)
    return talk


def test_messages_become_blocks():
    talk = ConversationBlocks(
        "r",
        [
            SystemMessage("prompt", 0),
            UserMessage([TextContent("look"), ImageContent("x", "image/png")], 1),
            reply(ThinkingContent("hm"), TextContent("I look."), CALL, stop="toolUse"),
            RESULT,
            BashExecutionMessage("ls", "a\n", False, False, 4, exit_code=0),
            CompactionSummaryMessage("before", 900, 5),
        ],
    )
    assert strip(talk) == [
        UserBlock("look", 1),
        ReplyBlock("I look.", "hm", model="m"),
        ToolBlock("c1", "read", {"path": "a"}, "done", "one", details={"lines": 1}),
        CommandBlock("ls", "a\n", 0),
        SummaryBlock("before", 900),
    ]


def test_pieces_grow_one_block():
    deltas = [
        Delta("thinking_delta", 0, delta="hm"),
        Delta("text_start", 1),
        Delta("text_delta", 1, delta="He"),
        Delta("text_delta", 1, delta="llo"),
    ]
    events = [ev.MessageDelta(run_id="r", delta=delta, usage=Usage()) for delta in deltas]
    talk = play(ev.MessageStarted(run_id="r", message=reply()), *events)
    assert strip(talk) == [ReplyBlock("Hello", "hm", is_live=True, model="m")]
    talk.apply(ev.MessageFinished(run_id="r", message=reply(ThinkingContent("hm"), TextContent("Hello!"))))
    assert strip(talk) == [ReplyBlock("Hello!", "hm", model="m")]


def test_versions_grow_with_changes():
    talk = play(ev.MessageStarted(run_id="r", message=reply()))
    before = (talk.version, talk.blocks[0].version)
    talk.apply(ev.MessageDelta(run_id="r", delta=Delta("text_delta", 0, delta="x"), usage=Usage()))
    assert (talk.version, talk.blocks[0].version) == (before[0] + 1, before[1] + 1)
    talk.apply(ev.TurnStarted(run_id="r", turn=1))
    assert talk.version == before[0] + 1


def test_call_runs_and_settles():
    talk = play(
        ev.MessageFinished(run_id="r", message=reply(CALL, stop="toolUse")),
        ev.ToolStarted(run_id="r", call_id="c1", name="read", arguments={"path": "a"}),
        ev.ToolProgress(run_id="r", call_id="c1", name="read", arguments={}, content=[TextContent("on")]),
    )
    assert strip(talk) == [ToolBlock("c1", "read", {"path": "a"}, "running", "on")]
    talk.apply(ev.ToolFinished(run_id="r", result=RESULT, duration_ms=7))
    talk.apply(ev.MessageFinished(run_id="r", message=RESULT))
    assert strip(talk) == [ToolBlock("c1", "read", {"path": "a"}, "done", "one", details={"lines": 1}, duration_ms=7)]


def test_changed_call_is_shown_as_made():
    change = {"modifiedInput": {"by": ["fixer"], "args": {"path": "b"}}, "modifiedOutput": {"by": ["scrub"]}}
    talk = play(
        ev.MessageFinished(run_id="r", message=reply(CALL, stop="toolUse")),
        ev.ToolStarted(run_id="r", call_id="c1", name="read", arguments={"path": "a"}),
        ev.CallChanged(run_id="r", call_id="c1", name="read", arguments={"path": "b"}, by=["fixer"]),
    )
    assert strip(talk) == [ToolBlock("c1", "read", {"path": "b"}, "running", changes="changed by fixer")]
    result = ToolResultMessage("c1", "read", [TextContent("one")], False, 3, details=change)
    again = ConversationBlocks("r", [reply(CALL, stop="toolUse"), result])
    (block,) = strip(again)
    assert (block.arguments, block.changes) == ({"path": "b"}, "changed by fixer; result changed by scrub")


def test_errors_and_aborts_differ():
    failed = reply(stop="error", error_message="overloaded")
    aborted = reply(TextContent("half"), stop="aborted", error_message="Request was aborted")
    talk = ConversationBlocks("r", [failed, aborted])
    assert strip(talk) == [ReplyBlock(error="overloaded", model="m"), ReplyBlock("half", is_aborted=True, model="m")]


def test_reports_become_boxes():
    details = {"id": "x", "description": "look", "others": [{"id": "y"}]}
    report = CustomMessage("subagent-notification", "<task-notification>", True, 1, details=details)
    hidden = CustomMessage("note", "secret", False, 1)
    assert strip(ConversationBlocks("r", [report, hidden])) == [
        ReportBlock([details, {"id": "y"}], "<task-notification>")
    ]


def test_remarks_are_noted():
    talk = play(
        ev.Warned(run_id="r", text="careful"),
        ev.Warned(run_id="other", text="not mine"),
        ev.Compacted(run_id="r", reason="threshold", result={"summary": "s", "tokensBefore": 5}),
        ev.Compacted(run_id="r", reason="threshold", error="no room"),
    )
    assert strip(talk) == [
        NoteBlock("careful", "warning"),
        SummaryBlock("s", 5),
        NoteBlock("The context could not be summarised: no room", "warning"),
    ]


def fail(attempt, *more):
    retry = ev.RetryScheduled(run_id="r", attempt=attempt, max_attempts=2, delay_ms=2000, error="busy")
    failed = reply(stop="error", error_message="busy")
    return [ev.AttemptStarted(run_id="r"), ev.MessageFinished(run_id="r", message=failed), *(more or [retry])]


def test_retry_replaces_the_failed_reply():
    talk = play(*fail(1), *fail(2))
    assert ([block.is_hidden for block in talk.blocks], talk.retry.attempt) == ([True, True], 2)
    talk.apply(ev.MessageFinished(run_id="r", message=reply(TextContent("well"))))
    talk.apply(ev.RetryEnded(run_id="r", success=True, attempt=2))
    assert ([block.text for block in talk.blocks if not block.is_hidden], talk.retry) == (["well"], None)


def test_last_failure_says_that_retries_ended():
    talk = play(*fail(1), *fail(2, ev.RetryEnded(run_id="r", success=False, attempt=1, error="busy")))
    assert [block.error for block in talk.blocks if not block.is_hidden] == ["Gave up after 1 retry: busy"]
    stopped = play(*fail(1), ev.RetryEnded(run_id="r", success=False, attempt=1, error="cancelled"))
    assert [block.error for block in stopped.blocks if not block.is_hidden] == ["Stopped before a retry: busy"]


def test_end_of_background_agent_touches_its_call():
    details = {"status": "background", "agentId": "a1"}
    result = ToolResultMessage("c1", "Agent", [TextContent("x")], False, 3, details=details)
    talk = ConversationBlocks("r", [reply(ToolCall("c1", "Agent", {}), stop="toolUse"), result])
    before = talk.blocks[0].version
    talk.touch_agent("a1")
    talk.touch_agent("other")
    assert (talk.blocks[0].version, talk.outcomes) == (before + 1, 1)


def test_what_is_before_comes_later():
    said = [UserMessage(f"m{n}", n) for n in range(6)]
    talk = ConversationBlocks("r", said[4:], is_whole=False)
    talk.apply(ev.MessageFinished(run_id="r", message=UserMessage("now", 9)))
    talk.put_earlier(said[:4])
    assert talk.is_whole and talk.recall(2) == 2 and talk.recall(9) == 2
    assert strip(talk) == [UserBlock(f"m{n}") for n in range(6)] + [UserBlock("now")]

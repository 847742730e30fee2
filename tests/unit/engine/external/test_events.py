import json
import random

import pytest

from retinue.core.events import (
    Compacted,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from retinue.core.messages import TextContent, ToolResultMessage, Usage
from retinue.core.model import Delta
from retinue.engine.external.events import EventPublisher
from retinue.engine.external.output import Stream
from retinue.engine.external.result import ProcessReport
from retinue.testing import FakeClock
from tests.fake_child import reply

NOW_MS = FakeClock().now_ms()


@pytest.fixture
def told():
    return []


@pytest.fixture
def telling(told):
    return EventPublisher("r1", told.append, FakeClock())


def test_pieces_become_live_events(telling, told):
    message = reply("Hi")["record"]["message"]
    delta = {"type": "text_delta", "contentIndex": 0, "delta": "Hi", "partial": message}
    lines = [
        ("message_start", {"message": message}),
        ("message_update", {"assistantMessageEvent": delta, "message": message}),
        ("tool_execution_update", {"toolCallId": "c", "toolName": "bash", "partialResult": {"content": [1]}}),
        ("message_update", {"assistantMessageEvent": {"type": "unheard_of"}}),
        ("message_start", {"message": {"role": "user", "content": "x"}}),
    ]
    for kind, fields in lines:
        telling.tell_piece(kind, json.dumps({"type": kind, **fields}).encode())
    assert [type(event) for event in told] == [MessageStarted, MessageDelta, ToolProgress]
    assert told[1] == MessageDelta(run_id="r1", delta=Delta("text_delta", 0, delta="Hi"), usage=Usage())


def test_user_messages_are_ours(telling, told):
    telling.tell({"type": "message_end", "message": {"role": "user", "content": "Task: x", "timestamp": 1}})
    assert told == []


def test_numbers_of_usage_are_mended(telling, told):
    telling.tell(reply("a", usage={"input": 3, "output": 1, "cost": 0.5})["record"])
    (event,) = told
    assert isinstance(event, MessageFinished)
    assert (event.message.usage.total_tokens, event.message.usage.cost.total) == (4, 0.5)


def test_compactions_are_told(telling, told):
    telling.tell({"type": "compaction_end", "reason": "threshold", "result": {"summary": "s"}, "aborted": False})
    telling.tell({"type": "compaction_end", "reason": "whim"})
    assert told == [Compacted(run_id="r1", reason="threshold", result={"summary": "s"})]


def test_calls_and_their_results_are_told(telling, told):
    call = {"toolCallId": "c", "toolName": "read"}
    telling.tell({"type": "tool_execution_start", **call, "args": {"path": "a"}})
    telling.tell({"type": "tool_execution_start", "args": "odd"})
    content = [{"type": "text", "text": "x"}]
    telling.tell({"type": "tool_execution_end", **call, "isError": True, "result": {"content": content, "details": 1}})
    telling.tell({"type": "tool_execution_end", **call, "result": "odd"})
    results = [
        ToolResultMessage("c", "read", [TextContent("x")], is_error=True, timestamp=NOW_MS, details=1),
        ToolResultMessage("c", "read", [], is_error=False, timestamp=NOW_MS),
    ]
    assert told == [
        ToolStarted(run_id="r1", call_id="c", name="read", arguments={"path": "a"}),
        ToolStarted(run_id="r1", call_id="", name="", arguments={}),
        *(ToolFinished(run_id="r1", result=result, in_order=False) for result in results),
    ]


def test_turns_are_counted(telling, told):
    answer = reply("b")["record"]["message"]
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "t", "content": [], "isError": False, "timestamp": 1}
    for _ in range(2):
        telling.tell({"type": "turn_start"})
        telling.tell({"type": "turn_end", "message": answer, "toolResults": [result, {"role": "user"}, 7]})
    telling.tell({"type": "turn_end", "message": result})
    told_turns = [(type(event), event.turn) for event in told]
    assert told_turns == [(TurnStarted, 1), (TurnFinished, 1), (TurnStarted, 2), (TurnFinished, 2)]
    assert [each.tool_call_id for each in told[1].tool_results] == ["c"]


def spoil(value, chance):
    """The same value with parts of it replaced by something else."""
    if chance.random() < 0.1:
        return chance.choice([None, [], {}, "x", -1, 1e18, True, [[]], {"type": "text"}, "timeout"])
    if isinstance(value, dict):
        return {key: spoil(item, chance) for key, item in value.items() if chance.random() > 0.05}
    return [spoil(item, chance) for item in value] if isinstance(value, list) else value


def test_spoilt_records_do_no_harm(telling):
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    call = {"toolCallId": "c", "toolName": "read"}
    known = [
        reply("a", calls=[{"name": "subagent_finalize", "arguments": {"status": "SUCCESS", "result": "r"}}])["record"],
        {"type": "turn_end", "message": reply("b")["record"]["message"], "toolResults": [{"role": "toolResult"}]},
        {"type": "tool_execution_start", **call, "args": {"path": "a"}},
        {"type": "tool_execution_end", **call, "result": {"content": [{"type": "text", "text": "x"}]}},
        {"type": "tool_execution_update", **call, "partialResult": {"content": []}},
        {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0}},
        {"type": "compaction_end", "reason": "manual", "result": {}},
        {"type": "result", "output": "x"},
    ]
    for _ in range(2_000):
        report = ProcessReport()

        def take(record, report=report):
            report.add(record)
            telling.tell(record)

        stream = Stream(take, telling.tell_piece)
        lines = [json.dumps(spoil(chance.choice(known), chance)) for _ in range(3)]
        try:
            stream.feed("\n".join(lines).encode())
            stream.close()
            report.render(stream.plain)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {lines}") from error

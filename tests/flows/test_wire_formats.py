import asyncio

import orjson
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Cost,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import ModelRequest
from retinue.models.script_file import parse_script
from retinue.testing.faults import to_spoken
from retinue.testing.wire.anthropic import AnthropicWire
from retinue.testing.wire.chat import ChatWire
from retinue.testing.wire.google import GoogleWire
from retinue.testing.wire.responses import ResponsesWire
from tests.flows.provider_world import APIS, open_seat

RICH = {
    "thinking": "Let me see… 🤔",
    "text": "I look at both.",
    "calls": [
        {"name": "read", "arguments": {"path": "ä.txt"}, "id": "call_a"},
        {"name": "read", "arguments": {"path": "b", "n": 1.5}, "id": "call_b"},
    ],
    "usage": {"input": 100, "output": 40, "cacheRead": 20},
    "chunk_chars": 3,
}


@pytest.mark.parametrize("api", APIS)
async def test_every_reply_is_streamed(api):
    async with open_seat(api, [RICH]) as seat:
        watched = await seat.ask()
        unwatched = await seat.ask(watch=False)
    assert watched == unwatched
    assert watched.failure is None
    assert [is_streamed(request) for request in seat.server.requests] == [True, True]


def is_streamed(request):
    return request.json.get("stream", request.path.endswith(":streamGenerateContent?alt=sse"))


WIRES = dict(zip(sorted(APIS), (AnthropicWire(), GoogleWire(), ChatWire(), ResponsesWire()), strict=True))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream", "text/event-stream"])
async def test_whole_reply_is_understood(api, kind):
    spoken = to_spoken(parse_script([RICH]).replies[0], position=0, model="mock-1")
    body = " \n" + WIRES[api].render_plain(spoken).decode()
    fault = {"kind": "status", "code": 200, "body": body, "headers": {"content-type": kind}}
    async with open_seat(api, [RICH]) as seat:
        expected = await seat.ask()
    async with open_seat(api, [{"text": "x", "fault": fault}]) as seat:
        assert await seat.ask() == expected


@pytest.mark.parametrize("api", APIS)
async def test_stream_under_a_wrong_name_is_understood(api):
    spoken = to_spoken(parse_script([RICH]).replies[0], position=0, model="mock-1", include_usage=True)
    body = b"".join(event.data for event in WIRES[api].render_stream(spoken)).decode()
    fault = {"kind": "status", "code": 200, "body": body, "headers": {"content-type": "application/json"}}
    async with open_seat(api, [RICH]) as seat:
        expected = await seat.ask()
    async with open_seat(api, [{"text": "x", "fault": fault}]) as seat:
        assert await seat.ask() == expected


async def test_list_of_events_is_understood():
    api = "google-generative-ai"
    spoken = to_spoken(parse_script([RICH]).replies[0], position=0, model="mock-1")
    events = [orjson.loads(event.data.removeprefix(b"data: ")) for event in WIRES[api].render_stream(spoken)]
    async with open_seat(api, [RICH]) as seat:
        expected = await seat.ask()
    async with open_seat(api, [{"text": "x", "fault": {"kind": "status", "code": 200, "body": events}}]) as seat:
        assert await seat.ask() == expected


@pytest.mark.parametrize("api", APIS)
async def test_reply_has_everything_said(api):
    async with open_seat(api, [RICH]) as seat:
        message = (await seat.ask()).message
    thinking, text, *calls = message.content
    assert (thinking.thinking, text.text) == ("Let me see… 🤔", "I look at both.")
    assert thinking.thinking_signature is not UNSET
    assert [(call.id.partition("|")[0], call.name, call.arguments) for call in calls] == [
        ("call_a", "read", {"path": "ä.txt"}),
        ("call_b", "read", {"path": "b", "n": 1.5}),
    ]
    assert (message.api, message.provider, message.model, message.stop_reason) == (api, "mock", "mock-1", "toolUse")
    cost = Cost(100e-6, 80e-6, 10e-6, 0, 190e-6)
    expected = Usage(100, 40, 20, 0, 160, cost)
    assert replace(message.usage, reasoning=UNSET) == replace(expected, cost=message.usage.cost)
    assert message.usage.cost.total == pytest.approx(cost.total)


@pytest.mark.parametrize("api", APIS)
async def test_deltas_rebuild_the_reply(api):
    async with open_seat(api, [RICH]) as seat:
        message = (await seat.ask()).message
    written = {}
    for delta in seat.deltas:
        if delta.type.endswith("_delta"):
            written[delta.content_index] = written.get(delta.content_index, "") + delta.delta
    ended = {d.content_index: d.content or d.tool_call for d in seat.deltas if d.type.endswith("_end")}
    assert written[0] == message.content[0].thinking == ended[0]
    assert written[1] == message.content[1].text == ended[1]
    assert [ended[2], ended[3]] == message.calls


@pytest.mark.parametrize("api", APIS)
async def test_second_turn_is_understood(api):
    async with open_seat(api, [RICH, {"text": "done"}]) as seat:
        first = (await seat.ask()).message
        results = [ToolResultMessage(c.id, c.name, [TextContent("x")], False, 2) for c in first.calls]
        second = await seat.ask(UserMessage("hello", 1), first, *results, watch=False)
    assert second.message.text == "done"
    assert second.message.stop_reason == "stop"


@pytest.mark.parametrize("api", APIS)
async def test_connection_is_used_again(api):
    async with open_seat(api, [{"text": "hi", "chunk_chars": 1}]) as seat:
        for _ in range(3):
            await seat.ask()
        for _ in range(3):
            await seat.ask(watch=False)
        assert len(seat.server._connections) == 1


@pytest.mark.parametrize("api", APIS)
async def test_cancelled_reply_leaves_its_text(api):
    async with open_seat(api, [{"text": "first words", "fault": {"kind": "stall", "at": "last_byte"}}]) as seat:
        task = asyncio.ensure_future(seat.ask())
        while not seat.deltas:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "".join(delta.delta for delta in seat.deltas if delta.type == "text_delta") == "first words"


@pytest.mark.parametrize("api", APIS)
async def test_body_over_a_megabyte_is_sent(api):
    async with open_seat(api, [{"text": "ok"}]) as seat:
        reply = await seat.ask(UserMessage("x" * 3_000_000, 1), watch=False)
    assert reply.message.text == "ok"


@pytest.mark.parametrize("api", APIS)
async def test_later_turns_convert_nothing_again(api):
    async with open_seat(api, [{"text": "ok"}]) as seat:
        model = seat.model
        converted = []
        convert = model.to_piece
        model.to_piece = lambda message: converted.append(message) or convert(message)
        memo, messages = {}, []
        for turn in range(5):
            messages += [UserMessage(f"{turn}", 1), _said("mock-1", api, f"a{turn}")]
            model.build_body(ModelRequest("s", messages, memo=memo))
    assert converted == messages


@pytest.mark.parametrize("api", APIS)
async def test_grown_body_equals_a_fresh_one(api):
    async with open_seat(api, []) as seat:
        memo, messages = {}, []
        for turn in range(4):
            call = ToolCall(f"id{turn}", "read", {"path": "p"})
            said = _said("mock-1", api, "text", call)
            messages += [UserMessage(f"q{turn}", 1), said]
            messages += [ToolResultMessage(f"id{turn}", "read", [TextContent("r")], False, 1)]
            grown = seat.model.build_body(ModelRequest("s", list(messages), memo=memo))
            assert grown == seat.model.build_body(ModelRequest("s", messages))


@pytest.mark.parametrize("api", APIS)
async def test_changed_history_is_converted_anew(api):
    async with open_seat(api, []) as seat:
        memo = {}
        seat.model.build_body(ModelRequest("s", [UserMessage("old", 1), _said("mock-1", api, "a")], memo=memo))
        fresh = [UserMessage("new", 1), UserMessage("more", 2)]
        assert seat.model.build_body(ModelRequest("s", fresh, memo=memo)) == seat.model.build_body(
            ModelRequest("s", fresh)
        )


@pytest.mark.parametrize("api", APIS)
async def test_foreign_thinking_becomes_text(api):
    async with open_seat(api, []) as seat:
        said = _said("other", api, "answer", ThinkingContent("deep thought", "c2ln"))
        body = seat.model.build_body(ModelRequest("s", [UserMessage("q", 1), said]))
    assert b"deep thought" in body
    assert b"c2ln" not in body


@pytest.mark.parametrize("api", APIS)
async def test_unanswered_call_gets_a_result(api):
    async with open_seat(api, [{"text": "x"}, {"text": "ok"}]) as seat:
        said = _said("mock-1", api, "a", ToolCall("lost", "read", {}))
        await seat.ask(UserMessage("q", 1), said, UserMessage("go on", 2), watch=False)
    sent = seat.server.requests[0].body
    assert sent.count(b"interrupted before it finished") == 1


@pytest.mark.parametrize("api", APIS)
async def test_result_without_a_call_is_dropped(api):
    async with open_seat(api, []) as seat:
        orphan = ToolResultMessage("gone", "read", [TextContent("orphan")], False, 1)
        body = seat.model.build_body(ModelRequest("s", [UserMessage("q", 1), orphan, UserMessage("r", 1)]))
    assert b"orphan" not in body


def _said(model, api, text, *blocks):
    return AssistantMessage([*blocks, TextContent(text)], api, "mock", model, Usage(), "stop", 1)

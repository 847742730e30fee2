import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from retinue.core.messages import (
    AssistantMessage,
    Cost,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import Delta, Draft, Failure, ModelInfo, ModelRequest, Price, Reply
from retinue.models.scripted import ScriptedModel, load_script, parse_script
from retinue.testing import FakeClock

INFO = ModelInfo(provider="p", id="m", api="a", cost=Price(input=1, output=2))

NOTHING = Usage()


def make_model(*replies: dict[str, Any], repeat: bool = False, clock: FakeClock | None = None) -> ScriptedModel:
    script = parse_script({"replies": list(replies), "repeat": repeat})
    return ScriptedModel(script, INFO, sleep=clock.sleep if clock else asyncio.sleep)


def make_request(*said: str, turns: int = 0, system: str = "") -> ModelRequest:
    """User messages; the last is followed by so many assistant turns."""
    messages: list[Message] = []
    for text in said or ("hi",):
        messages += [UserMessage(text, 0), *make_turn()]
    del messages[-2:]
    for _ in range(turns):
        messages += make_turn()
    return ModelRequest(system, messages)


def make_turn() -> list[Message]:
    call = AssistantMessage([ToolCall("c", "ls", {})], "a", "p", "m", Usage(), "toolUse", 0)
    return [call, ToolResultMessage("c", "ls", [TextContent("x")], False, 0)]


async def play(model: ScriptedModel, request: ModelRequest | None = None) -> Reply:
    return await model.reply(request or make_request(), Draft(model.info, started_ms=5))


def made(content: list[Any], usage: Usage = NOTHING, stop: str = "stop", **more: Any) -> AssistantMessage:
    return AssistantMessage(content, "a", "p", "m", usage, stop, 5, **more)  # type: ignore[arg-type]


async def test_reply_has_everything() -> None:
    call = {"name": "read", "arguments": {"path": "a"}}
    usage = {"input": 1_000_000, "output": 500_000, "cacheRead": 3}
    reply = await play(
        make_model({"thinking": "hm", "text": "hello", "calls": [call, {"name": "ls", "id": "x"}], "usage": usage})
    )
    content = [
        ThinkingContent("hm"),
        TextContent("hello"),
        ToolCall("call_0_2", "read", {"path": "a"}),
        ToolCall("x", "ls", {}),
    ]
    counted = Usage(1_000_000, 500_000, 3, 0, 1_500_003, Cost(1, 1, 0, 0, 2))
    assert reply == Reply(made(content, counted, "toolUse"))


async def test_watcher_gets_pieces() -> None:
    model = make_model({"text": "abcde", "calls": [{"name": "ls"}], "chunk_chars": 2})
    seen: list[Delta] = []
    await model.reply(make_request(), Draft(INFO, started_ms=5, watcher=seen.append))
    assert seen == [
        Delta("text_start", 0),
        Delta("text_delta", 0, delta="ab"),
        Delta("text_delta", 0, delta="cd"),
        Delta("text_delta", 0, delta="e"),
        Delta("text_end", 0, content="abcde"),
        Delta("toolcall_start", 1, id="call_0_1", tool_name="ls"),
        Delta("toolcall_delta", 1, delta="{}"),
        Delta("toolcall_end", 1, tool_call=ToolCall("call_0_1", "ls", {})),
    ]


async def test_turns_choose_the_reply() -> None:
    model = make_model({"text": "one"}, {"text": "two"})
    texts = [(await play(model, make_request(turns=turn))).message.text for turn in (1, 0, 1)]
    assert texts == ["two", "one", "two"]


async def test_exhausted_script_is_an_error() -> None:
    message = "the script has no further reply: script has 1, asked for 3"
    reply = await play(make_model({"text": "one"}), make_request(turns=2))
    assert reply == Reply(made([], stop="error", error_message=message), Failure("request", message))


async def test_repeating_script_begins_again() -> None:
    model = make_model({"text": "one"}, {"text": "two"}, repeat=True)
    assert (await play(model, make_request(turns=4))).message.text == "one"


async def test_failure_then_reply() -> None:
    error = {"kind": "rate", "message": "slow down", "status": 429, "retry_after_s": 2, "times": 2}
    model = make_model({"text": "fine", "error": error})
    replies = [await play(model) for _ in range(3)]
    other = await play(model, make_request("another conversation"))
    failed = Reply(
        made([], stop="error", error_message="slow down"),
        Failure("rate", "slow down", retryable=True, status=429, retry_after_s=2),
    )
    assert [replies[0], replies[1], other] == [failed] * 3
    assert replies[2].message.text == "fine"


async def test_text_stays_before_failure() -> None:
    reply = await play(make_model({"text": "half", "error": {"kind": "truncated", "message": "cut"}}))
    assert reply.failure == Failure("truncated", "cut", retryable=True)
    assert (reply.message.text, reply.message.stop_reason) == ("half", "error")


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ({"error": "broken"}, Failure("request", "broken")),
        ({"stop": "error"}, Failure("request", "the script ends this reply with an error")),
        ({"text": "no", "stop": "refusal"}, Failure("refused", "the model refused to answer")),
        (
            {"text": "x", "fault": {"kind": "reset"}},
            Failure("request", "the fault 'reset' of this reply is played by the mock server only"),
        ),
    ],
)
async def test_bad_ends_are_failures(reply: dict[str, Any], failure: Failure) -> None:
    played = await play(make_model(reply))
    assert (played.failure, played.message.stop_reason) == (failure, "error")
    assert played.message.error_message == failure.message


async def test_bad_arguments_are_reported() -> None:
    reply = await play(make_model({"calls": [{"name": "ls"}], "fault": {"kind": "bad_args"}}))
    assert (reply.failure, reply.faults) == (None, {"call_0_0": "the arguments are not valid JSON"})


@pytest.mark.parametrize(("stop", "raw"), [("length", UNSET), ("stop", "pause_turn")])
async def test_stop_reasons_are_kept(stop: str, raw: Any) -> None:
    extra = {} if raw is UNSET else {"raw_stop": raw}
    message = (await play(make_model({"text": "x", "stop": stop, **extra}))).message
    assert (message.stop_reason, message.raw_stop_reason) == (stop, raw)


async def test_delays_use_the_clock() -> None:
    clock = FakeClock(auto=True)
    await play(make_model({"text": "abc", "delay_ms": 500, "chunk_ms": 250, "chunk_chars": 1}, clock=clock))
    assert (clock.slept, clock.steady_s()) == ([0.5, 0.25, 0.25], 1.0)


async def test_abort_leaves_the_draft() -> None:
    model = make_model({"text": "abc", "chunk_ms": 60_000, "chunk_chars": 1})
    draft = Draft(INFO, started_ms=5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await model.reply(make_request(), draft)
    assert draft.finish("aborted").text == "a"


MATCHES = [
    {"text": "plain one"},
    {"text": "plain two"},
    {"calls": [{"name": "ls"}], "match": {"last_user": "^deploy"}},
    {"text": "deployed", "match": {"last_user": "^deploy"}},
    {"text": "as a critic", "match": {"system": "critic"}},
]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (make_request("hello"), "plain one"),
        (make_request("hello", "more"), "plain two"),
        (make_request("deploy it"), ""),
        (make_request("deploy it", turns=1), "deployed"),
        (make_request("deploy it", "hello"), "plain one"),
        (make_request("hello", "deploy it", turns=1), "deployed"),
        (make_request("hello", system="you are a critic"), "as a critic"),
    ],
)
async def test_match_plays_its_track(request_: ModelRequest, text: str) -> None:
    reply = await play(make_model(*MATCHES), request_)
    assert (reply.failure, reply.message.text) == (None, text)


async def test_model_is_named_by_file(tmp_path: Path) -> None:
    (tmp_path / "hello.json").write_text('[{"text": "hello"}]')
    model = ScriptedModel(load_script(tmp_path / "hello.json"))
    assert (model.info.ref, (await play(model)).message.text) == ("scripted/hello.json", "hello")

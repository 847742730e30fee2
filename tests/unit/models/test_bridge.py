import asyncio
import sys
from contextlib import asynccontextmanager

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import CompletedStreamedResponse, Model
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel as EchoModel
from pydantic_ai.usage import RequestUsage

from retinue.core.errors import ModelError
from retinue.core.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import Draft, ModelInfo, ModelRequest, ToolSpec
from retinue.models.bridge import build_bridge
from retinue.models.governor import Governor
from retinue.models.transport import Timing
from retinue.testing.clock import FakeClock

INFO = ModelInfo("far", "m-1", "bridge", reasoning=True, input=("text", "image"))
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
PARTS = [ThinkingPart("hm"), TextPart("I read."), ToolCallPart("read", {"path": "a"}, "c1")]


def make(model, timing=None):
    return build_bridge(
        INFO, governor=Governor(FakeClock(auto=True)), secrets=("sk-secret-1",), timing=timing, model=model
    )


async def ask(model, *messages, watcher=None, timing=None):
    bridge = make(model, timing)
    draft = Draft(INFO, started_ms=1, watcher=watcher)
    try:
        return await bridge.reply(ModelRequest("sys", messages or [UserMessage("hi", 1)], [READ]), draft)
    finally:
        await bridge.close()


class Speaker(FunctionModel):
    """Streams what its function returns."""

    @asynccontextmanager
    async def request_stream(self, messages, model_settings, model_request_parameters, run_context=None):
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


def answer(parts, **fields):
    return Speaker(lambda messages, info: ModelResponse(parts=parts, **fields))


async def test_reply_is_translated():
    reply = await ask(answer(PARTS, usage=RequestUsage(input_tokens=30, output_tokens=5, cache_read_tokens=10)))
    assert reply.message.content == [
        ThinkingContent("hm"),
        TextContent("I read."),
        ToolCall("c1", "read", {"path": "a"}),
    ]
    assert (reply.message.stop_reason, reply.message.provider) == ("toolUse", "far")
    assert reply.message.usage == Usage(20, 5, 10, 0, 35)
    assert (reply.failure, reply.faults) == (None, {})


async def test_streamed_reply_is_translated():
    async def speak(messages, info):
        yield {0: DeltaThinkingPart(content="h")}
        yield {0: DeltaThinkingPart(content="m")}
        yield "I "
        yield "read."
        yield {1: DeltaToolCall("read", '{"pa', tool_call_id="c1")}
        yield {1: DeltaToolCall(json_args='th": "a"}')}

    deltas = []
    reply = await ask(FunctionModel(stream_function=speak), watcher=deltas.append)
    assert reply.message.content == [
        ThinkingContent("hm"),
        TextContent("I read."),
        ToolCall("c1", "read", {"path": "a"}),
    ]
    assert "".join(d.delta for d in deltas if d.type == "toolcall_delta") == '{"path": "a"}'


async def test_conversation_reaches_the_library():
    seen = []
    model = Speaker(lambda messages, info: seen.extend(messages) or ModelResponse(parts=[TextPart("ok")]))
    said = AssistantMessage([TextContent("a"), ToolCall("c1", "read", {})], "bridge", "far", "m-1", Usage(), "stop", 1)
    result = ToolResultMessage("c1", "read", [TextContent("out"), ImageContent("aGk=", "image/png")], False, 1)
    await ask(model, UserMessage("hi", 1), said, result, UserMessage("more", 1))
    kinds = [[part.part_kind for part in message.parts] for message in seen]
    assert kinds == [
        ["system-prompt", "user-prompt"],
        ["text", "tool-call"],
        ["tool-return", "user-prompt", "user-prompt"],
    ]


async def test_bad_arguments_become_a_fault():
    reply = await ask(answer([ToolCallPart("read", '{"path": ', "c1")]))
    assert reply.message.calls == [ToolCall("c1", "read", {})]
    assert "cut off" in reply.faults["c1"]


@pytest.mark.parametrize(
    ("finish", "kind"), [("content_filter", "refused"), ("error", "overloaded"), ("length", None), ("stop", None)]
)
async def test_finish_reason_is_judged(finish, kind):
    reply = await ask(answer([TextPart("t")], finish_reason=finish))
    assert (reply.failure.kind if reply.failure else None) == kind
    assert reply.message.text == "t"


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (ModelHTTPError(429, "m-1", {"error": {"message": "slow, sk-secret-1"}}), "rate", True),
        (ModelHTTPError(401, "m-1", "bad key sk-secret-1"), "auth", False),
        (ConnectionResetError("reset"), "network", True),
        (KeyError("odd"), "protocol", True),
    ],
)
async def test_errors_become_failures(error, kind, retryable):
    def break_down(messages, info):
        raise error

    reply = await ask(Speaker(break_down))
    assert (reply.failure.kind, reply.failure.retryable) == (kind, retryable)
    assert "sk-secret-1" not in repr(reply)


async def test_library_test_model_works():
    reply = await ask(EchoModel(custom_output_text="echo", call_tools=[]), watcher=lambda delta: None)
    assert reply.message.text == "echo"


@pytest.mark.parametrize("timing", [Timing(idle_s=0.1), Timing(total_s=0.1)], ids=["idle", "total"])
async def test_limits_end_a_silent_reply(timing):
    async def speak(messages, info):
        yield "I "
        await asyncio.sleep(5)

    reply = await ask(FunctionModel(stream_function=speak), timing=timing)
    assert (reply.failure.kind, reply.failure.retryable, reply.message.text) == ("timeout", True, "I ")
    assert "httpIdleTimeoutMs" in reply.failure.message


async def test_model_without_streams_is_explained():
    class Mute(FunctionModel):
        request_stream = Model.request_stream

    reply = await ask(Mute(lambda messages, info: ModelResponse(parts=PARTS)))
    assert (reply.failure.kind, reply.failure.retryable) == ("request", False)
    assert "Streamed requests not supported" in reply.failure.message


def test_unknown_provider_is_a_model_error():
    with pytest.raises(ModelError, match="far/m-1: Unknown"):
        build_bridge(INFO, governor=Governor(FakeClock()))


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic_ai.exceptions", None)
    with pytest.raises(ModelError, match=r"retinue\[bridge\]"):
        build_bridge(INFO, governor=Governor(FakeClock()))

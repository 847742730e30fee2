"""Replies in which every field that may be missing is null: read as if the field were not there."""

import orjson
import pytest

from retinue.core.model import Draft, ModelInfo
from retinue.models.adapter import ADAPTERS, build_model
from retinue.models.governor import Governor
from retinue.models.script import ScriptUsage
from retinue.models.transport import Transport
from retinue.testing.clock import FakeClock
from retinue.testing.wire.anthropic import AnthropicWire
from retinue.testing.wire.base import Spoken, SpokenBlock
from retinue.testing.wire.chat import ChatWire
from retinue.testing.wire.google import GoogleWire
from retinue.testing.wire.responses import ResponsesWire

WIRES = dict(zip(ADAPTERS, (AnthropicWire(), ChatWire(), ResponsesWire(), GoogleWire()), strict=True))
OPTIONAL = {
    "anthropic-messages": (
        *("stop_reason", "stop_sequence", "stop_details", "container", "context_management", "citations", "signature"),
        *("cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation", "server_tool_use", "usage"),
        *("service_tier", "thinking", "data", "error", "caller", "id", "model", "output_tokens_details"),
    ),
    "openai-completions": (
        *("content", "tool_calls", "function_call", "refusal", "reasoning", "reasoning_content", "reasoning_text"),
        *("reasoning_details", "audio", "annotations", "role", "logprobs", "finish_reason", "usage", "error", "cost"),
        *("system_fingerprint", "service_tier", "id", "type", "name", "arguments", "function", "delta", "message"),
        *("prompt_tokens_details", "completion_tokens_details", "cached_tokens", "reasoning_tokens", "model"),
    ),
    "openai-responses": (
        *("error", "incomplete_details", "usage", "status", "encrypted_content", "phase", "logprobs", "annotations"),
        *("input_tokens_details", "output_tokens_details", "cached_tokens", "reasoning_tokens", "service_tier"),
        *("instructions", "metadata", "reasoning", "namespace", "id", "summary", "model", "content"),
    ),
    "google-generative-ai": (
        *("thought", "thoughtSignature", "functionCall", "finishReason", "finishMessage", "promptFeedback", "error"),
        *("usageMetadata", "cachedContentTokenCount", "thoughtsTokenCount", "safetyRatings", "id", "inlineData"),
        *("text", "modelVersion", "responseId", "citationMetadata", "content", "parts", "role"),
    ),
}
BLOCKS = (
    SpokenBlock("thinking", "Look.", signature="c2ln"),
    SpokenBlock("text", "Both."),
    SpokenBlock("call", '{"path":"a","limit":null}', "read", "call_1"),
    SpokenBlock("call", '{"command":"ls"}', "bash", "call_2"),
)


def read(api, payloads, *, whole):
    info = ModelInfo("p", "m", api)
    model = build_model(info, transport=Transport(), key="k", governor=Governor(FakeClock()))
    reading = model.open_reading(Draft(info, started_ms=1))
    for payload in payloads:
        reading.take_whole(payload) if whole else reading.take(payload)
    reply = reading.finish()
    said = [(type(block), getattr(block, "thinking", "")) for block in reply.message.content]
    message = reply.message
    return reply.failure, said, message.text, message.calls, message.usage, message.stop_reason


def list_data(events):
    lines = [line for event in events for line in event.data.split(b"\n") if line.startswith(b"data: {")]
    return [line.removeprefix(b"data: ") for line in lines]


def add_nulls(value, names, place=""):
    if isinstance(value, list):
        return [add_nulls(item, names, place) for item in value]
    if not isinstance(value, dict) or place in ("args", "input", "arguments"):
        return value
    found = {name: add_nulls(item, names, name) for name, item in value.items()}
    return {**dict.fromkeys(name for name in names if name not in value), **found}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("api", ADAPTERS)
def test_null_is_read_as_missing(api, whole):
    spoken = Spoken(0, "m", BLOCKS, ScriptUsage(input=5, output=7), "toolUse", chunk_chars=4)
    wire = WIRES[api]
    bodies = [wire.render_plain(spoken)] if whole else list_data(wire.render_stream(spoken))
    plain = read(api, bodies, whole=whole)
    assert plain[0] is None and len(plain[3]) == 2
    for name in OPTIONAL[api]:
        nulls = [orjson.dumps(add_nulls(orjson.loads(body), [name])) for body in bodies]
        assert read(api, nulls, whole=whole) == plain, name

import orjson
import pytest
from msgspec import UNSET

from retinue.core.messages import TextContent, ThinkingContent, ToolCall
from retinue.core.model import Draft, ModelInfo
from retinue.models.adapter import ADAPTERS, build_model
from retinue.models.failures import ProviderError
from retinue.models.governor import Governor
from retinue.models.transport import Transport
from retinue.testing.clock import FakeClock

ANTHROPIC, CHAT, RESPONSES, GOOGLE = ADAPTERS


def read(api, *events, whole=False, **fields):
    info = ModelInfo("p", "m", api, **fields)
    model = build_model(info, transport=Transport(), key="k", governor=Governor(FakeClock()))
    reading = model.open_reading(Draft(info, started_ms=1))
    for event in events:
        payload = event if isinstance(event, bytes) else orjson.dumps(event)
        reading.take_whole(payload) if whole else reading.take(payload)
    return reading.finish()


def chunk(finish=None, **delta):
    return {"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_anthropic_redacted_thinking_is_kept():
    block = {"type": "redacted_thinking", "data": "opaque"}
    reply = read(
        ANTHROPIC,
        {"type": "message_start", "message": {"id": "m1", "model": "m-2026", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )
    assert reply.message.content == [ThinkingContent("", "opaque", redacted=True)]
    assert (reply.message.response_id, reply.message.response_model) == ("m1", "m-2026")
    assert (reply.message.usage.input, reply.message.usage.output) == (3, 5)


def test_anthropic_usage_is_cumulative():
    reply = read(
        ANTHROPIC,
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4, "input_tokens": None}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    )
    assert (reply.message.usage.input, reply.message.usage.output, reply.message.usage.total_tokens) == (9, 7, 16)


def test_anthropic_refusal_is_explained():
    details = {"explanation": "against the rules"}
    body = {"content": [{"type": "text", "text": "no"}], "stop_reason": "refusal", "stop_details": details}
    reply = read(ANTHROPIC, body, whole=True)
    assert reply.failure.message.startswith("p/m: against the rules")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_chat_reasoning_fields_are_thinking(field):
    reply = read(CHAT, chunk(**{field: "let "}), chunk(**{field: "me"}), chunk(content="ok"), chunk("stop"), b"[DONE]")
    assert reply.message.content == [ThinkingContent("let me", field), TextContent("ok")]


def test_chat_reasoning_details_are_kept():
    first = {"type": "reasoning.text", "text": "a", "format": "f"}
    second = {"type": "reasoning.text", "text": "b", "signature": "s"}
    secret = {"type": "reasoning.encrypted", "data": "x"}
    events = [chunk(reasoning="a", reasoning_details=[first]), chunk(reasoning="b", reasoning_details=[second, secret])]
    thinking = read(CHAT, *events, chunk("stop"), b"[DONE]").message.content[0]
    merged = {"type": "reasoning.text", "text": "ab", "format": "f", "signature": "s"}
    assert (thinking.thinking, orjson.loads(thinking.thinking_signature)) == ("ab", [merged, secret])


def test_chat_calls_without_index_are_told_apart():
    def piece(**call):
        return chunk(tool_calls=[call])

    reply = read(
        CHAT,
        piece(id="a", function={"name": "x", "arguments": '{"n":'}),
        piece(function={"arguments": "1}"}),
        piece(id="b", function={"name": "y", "arguments": {"n": 2}}),
        chunk("tool_calls"),
        b"[DONE]",
    )
    assert reply.message.calls == [ToolCall("a", "x", {"n": 1}), ToolCall("b", "y", {"n": 2})]


def test_chat_interleaved_calls_are_put_together():
    def piece(index, **call):
        return chunk(tool_calls=[{"index": index, **call}])

    reply = read(
        CHAT,
        piece(0, id="a", function={"name": "x", "arguments": ""}),
        piece(1, id="b", function={"name": "y", "arguments": '{"n"'}),
        piece(0, function={"arguments": "{}"}),
        piece(1, function={"arguments": ":2}"}),
        chunk("tool_calls"),
        b"[DONE]",
    )
    assert reply.message.calls == [ToolCall("a", "x", {}), ToolCall("b", "y", {"n": 2})]


def test_chat_refusal_is_a_failure():
    reply = read(CHAT, chunk(refusal="I cannot"), chunk("stop"), b"[DONE]")
    assert (reply.failure.kind, reply.message.text) == ("refused", "I cannot")


def test_chat_without_finish_reason_ends_with_its_mark():
    reply = read(CHAT, chunk(content="half"), b"[DONE]")
    assert (reply.message.stop_reason, reply.message.text) == ("stop", "half")


def test_chat_server_without_finish_reasons():
    reply = read(CHAT, chunk(content="all"), b"[DONE]", compat={"supportsFinishReason": False})
    assert (reply.message.stop_reason, reply.message.text) == ("stop", "all")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}}, (4, 4, 6)),
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 3}, (7, 4, 3)),
        ({"prompt_tokens": 2, "completion_tokens": 4, "cached_tokens": 5}, (0, 4, 5)),
        ({"prompt_tokens": "many", "completion_tokens": None}, (0, 0, 0)),
        ([], (0, 0, 0)),
    ],
)
def test_chat_usage_in_all_dialects(usage, tokens):
    found = read(CHAT, {**chunk("stop"), "usage": usage}, b"[DONE]").message.usage
    assert (found.input, found.output, found.cache_read) == tokens


def test_chat_cumulative_usage_counts_once():
    events = [{**chunk(content="x"), "usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in (1, 2, 3)]
    assert read(CHAT, *events, chunk("stop"), b"[DONE]").message.usage.output == 3


def test_responses_reasoning_is_replayable():
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    response = {"id": "r", "model": "m", "status": "completed", "output": [{**item, "encrypted_content": "z"}]}
    thinking = read(RESPONSES, response, whole=True).message.content[0]
    assert thinking.thinking == "hm"
    assert orjson.loads(thinking.thinking_signature) == {**item, "encrypted_content": "z"}


def test_responses_summary_parts_are_paragraphs():
    item = {"type": "reasoning", "id": "rs_1"}
    parts = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    place = {"output_index": 0, "item_id": "rs_1"}
    reply = read(
        RESPONSES,
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
        {"type": "response.reasoning_summary_part.added", "summary_index": 0, **place},
        {"type": "response.reasoning_summary_text.delta", "delta": "one", **place},
        {"type": "response.reasoning_summary_part.added", "summary_index": 1, **place},
        {"type": "response.reasoning_summary_text.delta", "delta": "two", **place},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "summary": parts}},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    )
    assert reply.message.content[0].thinking == "one\n\ntwo"


@pytest.mark.parametrize(
    ("reason", "stop", "kind"),
    [("max_output_tokens", "length", None), ("content_filter", "error", "refused"), ("other", "error", "truncated")],
)
def test_responses_incomplete_is_judged(reason, stop, kind):
    response = {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": []}
    reply = read(RESPONSES, response, whole=True)
    assert (reply.message.stop_reason, reply.message.raw_stop_reason) == (stop, f"incomplete.{reason}")
    assert (reply.failure.kind if reply.failure else None) == kind


def test_responses_failure_is_classified():
    event = {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": "server_error", "message": "x"}},
    }
    with pytest.raises(ProviderError) as caught:
        read(RESPONSES, event)
    assert (caught.value.failure.kind, caught.value.failure.retryable) == ("overloaded", True)


def test_responses_text_keeps_its_phase():
    part = {"type": "output_text", "text": "note"}
    item = {"type": "message", "id": "msg_1", "phase": "commentary", "content": [part]}
    reply = read(RESPONSES, {"status": "completed", "output": [item]}, whole=True)
    assert reply.message.content == [TextContent("note", '{"v":1,"id":"msg_1","phase":"commentary"}')]


def test_google_signatures_stay_with_their_parts():
    parts = [
        {"text": "hm", "thought": True, "thoughtSignature": "AAAA"},
        {"text": "so"},
        {"text": "", "thoughtSignature": "BBBB"},
        {"functionCall": {"name": "read", "args": {"p": 1}}, "thoughtSignature": "CCCC"},
    ]
    data = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}], "usageMetadata": {}}
    assert read(GOOGLE, data, whole=True).message.content == [
        ThinkingContent("hm", "AAAA"),
        TextContent("so", "BBBB"),
        ToolCall("call_1", "read", {"p": 1}, "CCCC"),
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "refused"),
        ({"candidates": [{"finishReason": "RECITATION"}]}, "refused"),
        ({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, "protocol"),
        ({"candidates": []}, "truncated"),
        ({}, "truncated"),
    ],
)
def test_google_stops_are_judged(data, kind):
    assert read(GOOGLE, data, whole=True).failure.kind == kind


def test_google_thoughts_count_as_output():
    usage = {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 5}
    data = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    found = read(GOOGLE, data, whole=True).message.usage
    assert (found.input, found.cache_read, found.output, found.reasoning) == (5, 4, 7, 5)


@pytest.mark.parametrize("api", ADAPTERS)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "payload", [b"[]", b"3", b'"x"', b"null", b"{", b"\xff", b'{"choices": 3, "type": 4, "candidates": 5}']
)
def test_odd_shapes_never_crash(api, whole, payload):
    try:
        failure = read(api, payload, whole=whole).failure
    except ProviderError as error:
        failure = error.failure
    # One of these is a well-formed event of a kind that nobody knows: it is skipped.
    assert failure is None or failure.kind in ("protocol", "truncated")


def test_unset_fields_stay_unset():
    message = read(CHAT, {"choices": [{"message": {"content": "t"}, "finish_reason": "stop"}]}, whole=True).message
    assert (message.response_id, message.response_model, message.error_message) == (UNSET, UNSET, UNSET)

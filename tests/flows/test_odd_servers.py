"""Replies as servers that people run really send them, with fields left out, empty, repeated or of another type."""

import pytest

from retinue.core.messages import UserMessage
from retinue.core.model import Draft, ModelRequest
from retinue.models.adapter import build_model
from retinue.models.governor import Governor
from retinue.models.transport import Transport
from retinue.testing.clock import FakeClock
from tests.flows.odd_world import ANTHROPIC, CHAT, DONE, GOOGLE, RESPONSES, chunk, piece, serve
from tests.flows.provider_world import FAST, to_info


async def ask(api, *replies, **fields):
    """The reply of a model behind such a server, and what the server was asked."""
    transport = Transport()
    with serve(*replies) as odd:
        info = to_info(api, odd.url, **{"reasoning": False, **fields})
        model = build_model(info, transport=transport, key="k", governor=Governor(FakeClock(auto=True)), timing=FAST)
        draft = Draft(info, started_ms=1, watcher=lambda delta: None)
        try:
            return await model.reply(ModelRequest("s", [UserMessage("hi", 1)]), draft), odd.requests
        finally:
            await transport.close()


def tell(reply):
    """A reply in short: its text, its calls, how it stopped, and what is wrong."""
    calls = [(call.name, call.arguments) for call in reply.message.calls]
    faults = list(reply.faults) if reply.failure is None else reply.failure.kind
    return reply.message.text, calls, reply.message.stop_reason, faults


# --- chat completions

A, B = ("read", {"path": "a"}), ("read", {"path": "b"})
W = ("write", {"path": "w"})
CALLS = {
    "equal index, names only": [piece("read", '{"path":"a"}', index=0), piece("write", '{"path":"w"}', index=0)],
    "equal index, no names between": [
        piece("read", "", index=0),
        piece(None, '{"path":', index=0),
        piece(None, '"a"}', index=0),
        piece("write", "", index=0),
        piece(None, '{"path":"w"}', index=0),
    ],
    "equal index, new id": [
        piece("read", '{"path":', index=0, id="x"),
        piece(None, '"a"}', index=0),
        piece("write", '{"path":', index=0, id="y"),
        piece(None, '"w"}', index=0, id=""),
    ],
    "equal index and id": [
        piece("read", '{"path":"a"}', index=0, id="call"),
        piece("write", '{"path":"w"}', index=0, id="call"),
    ],
    "name and id in every chunk": [
        piece("read", '{"path":', index=0, id="x"),
        piece("read", '"a"}', index=0, id="x"),
        piece("write", '{"path":', index=1, id="y"),
        piece("write", '"w"}', index=1, id="y"),
    ],
    "name in every chunk": [
        piece("read", '{"path":', index=0),
        piece("read", '"a"}', index=0),
        piece("write", '{"path":"w"}', index=0),
    ],
    "no index, no id": [
        piece("read", '{"path":'),
        piece(None, '"a"}'),
        piece("write", '{"path":'),
        piece(None, '"w"}'),
    ],
    "index null, id null": [
        piece("read", '{"path":"a"}', index=None, id=None),
        piece("write", '{"path":"w"}', index=None, id=None),
    ],
    "objects": [piece("read", {"path": "a"}, index=0), piece("write", {"path": "w"}, index=0)],
    "in one chunk": [
        chunk(
            tool_calls=[
                {"index": 0, "function": {"name": "read", "arguments": '{"path":"a"}'}},
                {"index": 0, "function": {"name": "write", "arguments": '{"path":"w"}'}},
            ]
        )
    ],
    "in one chunk without index": [
        chunk(
            tool_calls=[
                {"function": {"name": "read", "arguments": {"path": "a"}}},
                {"function": {"name": "write", "arguments": {"path": "w"}}},
            ]
        )
    ],
    "empty names between": [
        piece("read", "", index=0, id="x"),
        piece("", '{"path":"a"}', index=0, id=None),
        piece("write", None, index=1, id="y"),
        piece("", '{"path":"w"}', index=1),
    ],
}


@pytest.mark.sample(17)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("finish", ["tool_calls", "tool_use", "stop", "eos", None])
async def test_chat_calls_are_told_apart(name, finish):
    end = [chunk(finish)] if finish else []
    reply, _ = await ask(CHAT, [*CALLS[name], *end, DONE])
    assert tell(reply) == ("", [A, W], "toolUse", [])
    assert len({call.id for call in reply.message.calls}) == 2


async def test_chat_same_function_twice():
    pieces = [piece("read", '{"path":"a"}', index=0), piece("read", '{"path":"b"}', index=0)]
    reply, _ = await ask(CHAT, [*pieces, chunk("tool_calls"), DONE])
    assert tell(reply) == ("", [A, B], "toolUse", [])


@pytest.mark.parametrize("arguments", [None, "", "null", {}, "{}"])
async def test_chat_call_without_arguments(arguments):
    reply, _ = await ask(CHAT, [piece("read", arguments, index=0), chunk("tool_calls"), DONE])
    assert tell(reply) == ("", [("read", {})], "toolUse", [])


HELLO = [chunk(content="hel"), chunk(content="lo")]
FINE = ("hello", [], "stop", [])
STREAMS = {
    "DONE without a reason": [*HELLO, DONE],
    "DONE without a space": [*HELLO, b"data:[DONE]\n\n"],
    "empty reasons": [chunk("", content="hel"), chunk("", content="lo"), chunk(""), DONE],
    "role in every chunk": [
        chunk(role="assistant", content=""),
        chunk(role="assistant", content="hel"),
        chunk(role="assistant", content="lo"),
        chunk("stop", role="assistant", content=None),
        DONE,
    ],
    "no choices": [{"choices": []}, *HELLO, {"choices": None}, {"usage": None}, chunk("stop"), DONE],
    "null usage": [{**item, "usage": None} for item in [*HELLO, chunk("stop")]] + [DONE],
    "null delta": [*HELLO, {"choices": [{"delta": None, "finish_reason": "stop"}]}, DONE],
    "no index": [{"choices": [{"delta": {"content": "hello"}}]}, {"choices": [{"finish_reason": "stop"}]}, DONE],
    "unknown reason": [*HELLO, chunk("eos_token"), DONE],
    "a whole message": [{"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}, DONE],
    "a whole message at the end": [*HELLO, {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}],
}


@pytest.mark.parametrize("name", STREAMS)
async def test_chat_text_is_read(name):
    reply, _ = await ask(CHAT, STREAMS[name])
    assert tell(reply) == FINE


async def test_done_after_nothing_is_truncated():
    reply, _ = await ask(CHAT, [chunk(role="assistant", content=""), DONE])
    assert tell(reply)[2:] == ("error", "truncated")


async def test_done_inside_a_call_is_truncated():
    reply, _ = await ask(CHAT, [piece("read", '{"path":"a', index=0), DONE])
    assert tell(reply)[2:] == ("error", "truncated")


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length", "max_output_tokens", "MAX_TOKENS"])
async def test_chat_length_has_many_names(reason):
    reply, _ = await ask(CHAT, [*HELLO, chunk(reason), DONE])
    assert tell(reply) == ("hello", [], "length", [])


@pytest.mark.parametrize(
    "body", [{"message": {"content": "hello"}}, {"message": {"content": "hello"}, "finish_reason": ""}]
)
async def test_whole_reply_without_a_reason(body):
    reply, _ = await ask(CHAT, (200, {"choices": [body]}))
    assert tell(reply) == FINE


# --- responses


def added(item, **fields):
    return {"type": "response.output_item.added", "item": item, **fields}


def done(item, **fields):
    return {"type": "response.output_item.done", "item": item, **fields}


def said(text, **fields):
    return {"type": "response.output_text.delta", "delta": text, **fields}


def wrote(text, **fields):
    return {"type": "response.function_call_arguments.delta", "delta": text, **fields}


def message(text="", **fields):
    parts = [{"type": "output_text", "text": text}] if text else []
    return {"type": "message", "role": "assistant", "content": parts, **fields}


def function(name, arguments="", **fields):
    return {"type": "function_call", "name": name, "arguments": arguments, **fields}


def completed(*output, **fields):
    return {"type": "response.completed", "response": {"status": "completed", "output": list(output), **fields}}


TALK = ("hello", [A, W], "toolUse", [])
OUTPUTS = {
    "by item id": [
        added(message(id="m")),
        said("hel", item_id="m"),
        said("lo", item_id="m"),
        done(message("hello", id="m")),
        # llama.cpp: calls have no id of their own, and pieces name them by their call id.
        added(function("read", call_id="fc_1")),
        wrote('{"path":', item_id="fc_1"),
        wrote('"a"}', item_id="fc_1"),
        done(function("read", '{"path":"a"}', call_id="fc_1")),
        added(function("write", call_id="fc_2")),
        wrote('{"path":"w"}', item_id="fc_2"),
        done(function("write", '{"path":"w"}', call_id="fc_2")),
        completed(),
    ],
    "interleaved by item id": [
        added(message(id="m")),
        added(function("read", call_id="c1", id="f1")),
        added(function("write", call_id="c2", id="f2")),
        wrote('{"path":', item_id="f1"),
        wrote('{"path":', item_id="f2"),
        said("hello", item_id="m"),
        wrote('"w"}', item_id="f2"),
        wrote('"a"}', item_id="f1"),
        completed(),
    ],
    "by neither": [
        added(message()),
        said("hello"),
        done(message("hello")),
        added(function("read", call_id="c1")),
        wrote('{"path":"a"}'),
        done(function("read", '{"path":"a"}', call_id="c1")),
        added(function("write", call_id="c2")),
        wrote('{"path":"w"}'),
        done(function("write", '{"path":"w"}', call_id="c2")),
        completed(),
    ],
    "always the first place": [
        added(message(id="m"), output_index=0),
        said("hello", item_id="m", output_index=0),
        added(function("read", call_id="c1", id="f1"), output_index=0),
        wrote('{"path":"a"}', item_id="f1", output_index=0),
        added(function("write", call_id="c2", id="f2"), output_index=0),
        wrote('{"path":"w"}', item_id="f2", output_index=0),
        done(message("hello", id="m"), output_index=0),
        done(function("read", '{"path":"a"}', call_id="c1", id="f1"), output_index=0),
        done(function("write", '{"path":"w"}', call_id="c2", id="f2"), output_index=0),
        completed(),
    ],
    "a new id in every event": [
        added(message(id="1"), output_index=0),
        said("hello", item_id="2", output_index=0),
        done(message("hello", id="3"), output_index=0),
        added(function("read", call_id="c1", id="4"), output_index=1),
        wrote('{"path":"a"}', item_id="5", output_index=1),
        done(function("read", '{"path":"a"}', call_id="c1", id="6"), output_index=1),
        added(function("write", call_id="c2", id="7"), output_index=2),
        wrote('{"path":"w"}', item_id="8", output_index=2),
        done(function("write", '{"path":"w"}', call_id="c2", id="9"), output_index=2),
        completed(
            message("hello", id="10"),
            function("read", '{"path":"a"}', call_id="c1", id="11"),
            function("write", '{"path":"w"}', call_id="c2", id="12"),
        ),
    ],
    "never added": [
        said("hello", item_id="m"),
        done(message("hello", id="m")),
        wrote('{"path":"a"}', item_id="f1"),
        done(function("read", '{"path":"a"}', call_id="c1", id="f1")),
        done(function("write", '{"path":"w"}', call_id="c2", id="f2")),
        completed(),
    ],
    "never done": [
        added(message(id="m"), output_index=None),
        said("hello", item_id="m", output_index=None),
        added(function("read", call_id="c1", id="f1")),
        wrote('{"path":"a"}', item_id="f1"),
        added(function("write", call_id="c2", id="f2")),
        {"type": "response.function_call_arguments.done", "item_id": "f2", "arguments": '{"path":"w"}'},
        completed(),
    ],
    "at the end only": [
        {"type": "response.created"},
        completed(
            message("hello"),
            function("read", '{"path":"a"}', call_id="c1"),
            function("write", '{"path":"w"}', call_id="c2"),
        ),
    ],
    "calls at the end only": [
        said("hello"),
        completed(
            message("hello"),
            function("read", '{"path":"a"}', call_id="c1"),
            function("write", '{"path":"w"}', call_id="c2"),
        ),
    ],
    "objects and nulls": [
        added(message(id=None), output_index=None),
        said(None),
        said("hello", item_id=None, content_index=None, sequence_number=None),
        done({**message("hello"), "annotations": None}),
        done(function("read", {"path": "a"}, call_id="c1", id=None)),
        done(function("write", {"path": "w"}, call_id=None, id="f2")),
        completed(usage=None, incomplete_details=None, error=None, model=None, id=None),
    ],
    "DONE at the end": [
        said("hello"),
        done(message("hello")),
        done(function("read", '{"path":"a"}', call_id="c1")),
        done(function("write", '{"path":"w"}', call_id="c2")),
        DONE,
    ],
}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_responses_items_are_paired(name):
    reply, _ = await ask(RESPONSES, OUTPUTS[name])
    assert tell(reply) == TALK
    assert len({call.id for call in reply.message.calls}) == 2


async def test_responses_reasoning_is_paired_by_id():
    thought = {"type": "reasoning", "id": "r", "summary": []}
    reply, _ = await ask(
        RESPONSES,
        [
            added(thought),
            {"type": "response.reasoning_text.delta", "delta": "hm", "item_id": "r"},
            added(message(id="m")),
            said("hello", item_id="m"),
            done({**thought, "content": [{"type": "reasoning_text", "text": "hm"}]}),
            done(message("hello", id="m")),
            completed(),
        ],
    )
    assert (reply.message.content[0].thinking, reply.message.text, reply.failure) == ("hm", "hello", None)


async def test_responses_incomplete_without_status():
    event = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    reply, _ = await ask(RESPONSES, [said("hello"), event])
    assert tell(reply) == ("hello", [], "length", [])


# --- anthropic


def start(content, **fields):
    return {"type": "content_block_start", "content_block": content, **fields}


def delta(kind, **fields):
    place = {"index": fields.pop("index")} if "index" in fields else {}
    return {"type": "content_block_delta", **place, "delta": {"type": kind, **fields}}


def stop(reason="end_turn", **usage):
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or None},
        {"type": "message_stop"},
    ]


TOOLS = ({"type": "tool_use", "name": "read", "id": "1"}, {"type": "tool_use", "name": "write", "id": "2"})
BLOCKS = {
    "no index": [
        {"type": "message_start", "message": {"usage": None}},
        start({"type": "text", "text": None}),
        delta("text_delta", text="hello"),
        {"type": "content_block_stop"},
        start({**TOOLS[0], "input": None}),
        delta("input_json_delta", partial_json='{"path":"a"}'),
        {"type": "content_block_stop"},
        start({**TOOLS[1], "input": {}}),
        delta("input_json_delta", partial_json='{"path":"w"}'),
        {"type": "content_block_stop"},
        *stop("tool_use"),
    ],
    "equal index": [
        start({"type": "text", "text": ""}, index=0),
        delta("text_delta", index=0, text="hello"),
        start(TOOLS[0], index=0),
        delta("input_json_delta", index=0, partial_json='{"path":"a"}'),
        start(TOOLS[1], index=0),
        delta("input_json_delta", index=0, partial_json='{"path":"w"}'),
        *stop("tool_use"),
    ],
    "never started or stopped": [
        delta("text_delta", index=0, text="hello"),
        start({**TOOLS[0], "input": {"path": "a"}}, index=1),
        start({**TOOLS[1], "input": '{"path": "w"}'}, index=2),
        *stop("tool_use"),
    ],
    "nulls": [
        {"type": "message_start", "message": None},
        start({"type": "text"}, index=0),
        delta("text_delta", index=0, text=None),
        delta("text_delta", index=0, text="hello"),
        start(TOOLS[0], index=1),
        delta("input_json_delta", index=1, partial_json=None),
        delta("input_json_delta", index=1, partial_json='{"path":"a"}'),
        start(TOOLS[1], index=2),
        delta("input_json_delta", index=2, partial_json='{"path":"w"}'),
        {"type": "message_delta", "delta": None, "usage": None},
        *stop("tool_use"),
    ],
    "no message_stop": [
        delta("text_delta", text="hello"),
        start({**TOOLS[0], "input": {"path": "a"}}),
        start({**TOOLS[1], "input": {"path": "w"}}),
        stop("tool_use")[0],
    ],
    "DONE at the end": [
        delta("text_delta", text="hello"),
        start({**TOOLS[0], "input": {"path": "a"}}),
        start({**TOOLS[1], "input": {"path": "w"}}),
        DONE,
    ],
}


@pytest.mark.parametrize("name", BLOCKS)
async def test_anthropic_blocks_are_paired(name):
    reply, _ = await ask(ANTHROPIC, BLOCKS[name])
    assert tell(reply) == TALK


async def test_whole_message_without_a_reason():
    body = {"content": [{"type": "text", "text": "hello"}], "stop_reason": None, "usage": None}
    reply, _ = await ask(ANTHROPIC, (200, body))
    assert tell(reply) == FINE


# --- google


def candidate(*parts, **fields):
    return {"candidates": [{"content": {"parts": list(parts)}, **fields}]}


def called(name, arguments, **fields):
    return {"functionCall": {"name": name, "args": arguments, **fields}}


PARTS = {
    "nulls": [
        candidate({"text": "hel", "thought": None, "functionCall": None, "thoughtSignature": None}, finishReason=None),
        candidate({"text": "lo"}, called("read", {"path": "a"}, id=None)),
        {"candidates": [{"content": None}], "usageMetadata": None, "promptFeedback": None},
        candidate({"text": None, **called("write", {"path": "w"})}, finishReason="STOP"),
    ],
    "arguments in a string": [
        candidate({"text": "hello"}, called("read", '{"path": "a"}')),
        candidate(called("write", '{"path": "w"}'), finishReason="STOP"),
    ],
    "unknown reason": [
        candidate(
            {"text": "hello"}, called("read", {"path": "a"}), called("write", {"path": "w"}), finishReason="TOOL_CALLS"
        )
    ],
    "DONE at the end": [
        candidate({"text": "hello"}, called("read", {"path": "a"}), called("write", {"path": "w"})),
        DONE,
    ],
    "lists": [
        [candidate({"text": "hello"}, called("read", {"path": "a"}))],
        [candidate(called("write", {"path": "w"}), finishReason="STOP")],
    ],
}


@pytest.mark.parametrize("name", PARTS)
async def test_google_parts_are_read(name):
    reply, _ = await ask(GOOGLE, PARTS[name])
    assert tell(reply) == TALK


async def test_google_without_a_reason_may_end():
    reply, _ = await ask(GOOGLE, [candidate({"text": "hello"})], compat={"supportsFinishReason": False})
    assert tell(reply) == FINE
    reply, _ = await ask(GOOGLE, [candidate({"text": "hello"})])
    assert tell(reply)[3] == "truncated"


@pytest.mark.parametrize(
    "body",
    [
        candidate({"text": "hello"}),
        [candidate({"text": "hel"}), candidate({"text": "lo"}, finishReason="STOP")],
    ],
)
async def test_google_whole_replies_are_read(body):
    reply, _ = await ask(GOOGLE, (200, body))
    assert tell(reply) == FINE


# --- errors in the middle of a stream

BEFORE = {
    CHAT: chunk(content="hello"),
    RESPONSES: said("hello"),
    ANTHROPIC: delta("text_delta", index=0, text="hello"),
    GOOGLE: candidate({"text": "hello"}),
}
TOO_LONG = "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too long"
ERRORS = {
    "object": ({"error": {"message": "busy", "type": "server_error"}}, "overloaded"),
    "string": ({"error": "busy"}, "overloaded"),
    "typed": ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "overloaded"),
    "flat": ({"type": "error", "message": "busy", "code": "server_error"}, "overloaded"),
    "vllm": ({"object": "error", "message": "busy", "type": "InternalServerError", "code": 500}, "overloaded"),
    "litellm": ({"error": {"message": TOO_LONG, "type": "None", "param": "None", "code": "400"}}, "overflow"),
    "rate": ({"error": {"message": "slow down", "code": 429}}, "rate"),
    "detail": ({"detail": "busy"}, "overloaded"),
    "code only": ({"code": 401, "message": "bad key"}, "auth"),
    "list": ([{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}], "overloaded"),
}


@pytest.mark.sample(13)
@pytest.mark.parametrize("api", BEFORE)
@pytest.mark.parametrize("name", ERRORS)
async def test_errors_inside_a_stream_are_known(api, name):
    event, kind = ERRORS[name]
    reply, _ = await ask(api, [BEFORE[api], event])
    assert tell(reply) == ("hello", [], "error", kind)


async def test_error_inside_a_choice_is_known():
    choice = {"delta": {"content": ""}, "finish_reason": "error", "error": {"code": 429, "message": "slow down"}}
    reply, _ = await ask(CHAT, [chunk(content="hello"), {"choices": [choice]}, DONE])
    assert tell(reply)[3] == "rate"


async def test_exceeded_window_as_a_reason_is_overflow():
    reply, _ = await ask(CHAT, [chunk("model_context_window_exceeded"), DONE])
    assert tell(reply)[3] == "overflow"


# --- a paused turn


def pause(*blocks):
    events = [{"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}}]
    for index, block in enumerate(blocks):
        events += [start(block, index=index), {"type": "content_block_stop", "index": index}]
    return [*events, *stop("pause_turn", output_tokens=5)]


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
END = [
    start({"type": "text", "text": "lo"}, index=0),
    {"type": "content_block_stop", "index": 0},
    *stop(output_tokens=2),
]


async def test_paused_turn_goes_on():
    first = pause({"type": "text", "text": "hel"}, SEARCH)
    reply, requests = await ask(ANTHROPIC, first, pause(FOUND), END)
    assert (tell(reply), reply.message.usage.output) == (("hel\nlo", [], "stop", []), 12)
    told = [request["messages"][1:] for request in requests]
    text = {"type": "text", "text": "hel"}
    assert told == [
        [],
        [{"role": "assistant", "content": [text, SEARCH]}],
        [{"role": "assistant", "content": [text, SEARCH, FOUND]}],
    ]


async def test_paused_turn_keeps_what_was_streamed():
    first = [
        start({"type": "thinking", "thinking": "", "signature": ""}, index=0),
        delta("thinking_delta", index=0, thinking="hm"),
        delta("signature_delta", index=0, signature="sig"),
        start({**SEARCH, "input": {}}, index=1),
        delta("input_json_delta", index=1, partial_json='{"query":'),
        delta("input_json_delta", index=1, partial_json='"x"}'),
        *stop("pause_turn"),
    ]
    reply, requests = await ask(ANTHROPIC, first, END)
    assert (reply.failure, reply.message.text) == (None, "lo")
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert requests[1]["messages"][1] == {"role": "assistant", "content": [thought, SEARCH]}


async def test_paused_turn_with_calls_is_over():
    reply, requests = await ask(ANTHROPIC, pause({**TOOLS[0], "input": {"path": "a"}}))
    assert (tell(reply), len(requests)) == (("", [A], "toolUse", []), 1)


async def test_endless_pauses_end():
    reply, requests = await ask(ANTHROPIC, *[pause({"type": "text", "text": "x"})] * 40)
    assert (reply.failure.kind, reply.failure.retryable) == ("protocol", False)
    assert len(requests) < 20


async def test_failure_after_a_pause_keeps_the_text():
    reply, requests = await ask(ANTHROPIC, pause({"type": "text", "text": "hel"}), (503, {"error": "busy"}))
    assert (tell(reply), len(requests)) == (("hel", [], "error", "overloaded"), 2)


# --- the program

PROGRAM = {
    "llama.cpp": (RESPONSES, [*OUTPUTS["by item id"][:4], completed()], "hello"),
    "no finish reason": (CHAT, [*HELLO, DONE], "hello"),
    "paused": (ANTHROPIC, pause({"type": "text", "text": "hel"}), "hello"),
}


@pytest.mark.parametrize("name", PROGRAM)
def test_program_answers(name, tmp_path):
    api, events, text = PROGRAM[name]
    with serve(events, END) as odd:
        result = odd.run(api, tmp_path)
    answers = [line["message"] for line in result.lines if line["type"] == "message_end"]
    assert [part["text"] for part in answers[-1]["content"] if part["type"] == "text"] in ([text], ["hel", "lo"])
    assert (result.status, answers[-1]["stopReason"]) == (0, "stop")


def test_program_runs_calls_of_equal_index(tmp_path):
    first = [piece("ls", '{"path":"."}', index=0), piece("bash", '{"command":"echo two"}', index=0), DONE]
    with serve(first, [*HELLO, DONE]) as odd:
        result = odd.run(CHAT, tmp_path)
    roles = [message["role"] for message in odd.requests[1]["messages"]]
    assert (result.status, roles[-3:]) == (0, ["assistant", "tool", "tool"])
    assert [call["function"]["name"] for call in odd.requests[1]["messages"][-3]["tool_calls"]] == ["ls", "bash"]


def test_program_compacts_after_litellm_refuses(tmp_path):
    words = [chunk(content="word " * 200), chunk("stop"), DONE]
    refusal = (400, {"error": {"message": TOO_LONG, "type": None, "param": None, "code": "400"}})
    summary = (200, {"choices": [{"message": {"content": "a summary"}, "finish_reason": "stop"}]})
    with serve(words, refusal, summary, [*HELLO, DONE]) as odd:
        odd.run(CHAT, tmp_path, "long " * 200)
        result = odd.run(CHAT, tmp_path, "--continue", "go " * 20_000)
    kinds = [line["type"] for line in result.lines]
    assert ("compaction_start" in kinds, result.status) == (True, 0), result.stderr

"""The provider faults of the reliability table, in its order, as far as one model call decides them."""

import asyncio
import time
from email.utils import formatdate

import pytest

from retinue.core.messages import TextContent
from retinue.core.model import Failure
from retinue.models.reply_reader import REPLY_LIMIT_CHARS
from retinue.models.transport import Timing
from tests.flows.provider_world import APIS, KEY, open_seat

EVERY_API = pytest.mark.parametrize("api", APIS)
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
POSITIONS = ("first_byte", "mid_text", "mid_args", "after_call", "last_byte")
REPLY = {
    "text": "some words first",
    "calls": [{"name": "read", "arguments": {"path": "a"}, "id": "one"}, {"name": "read", "id": "two"}],
    "chunk_chars": 4,
}
QUICK = Timing(idle_s=0.2)


def faulty(**fault):
    return [{**REPLY, "fault": fault}]


@pytest.mark.sample(15)
@EVERY_API
@MODES
@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({}, None),
        ({"retry-after": "1000000000"}, 1e9),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
    ],
    ids=["seconds", "fraction", "ms", "absent", "absurd", "negative", "words"],
)
async def test_rate_limit_says_how_long(api, stream, headers, wait_s):
    async with open_seat(api, faulty(kind="status", code=429, headers=headers)) as seat:
        failure = (await seat.ask(stream=stream)).failure
    assert (failure.kind, failure.retryable, failure.status, failure.retry_after_s) == ("rate", True, 429, wait_s)


async def test_rate_limit_until_a_date():
    headers = {"retry-after": formatdate(time.time() + 30, usegmt=True)}
    async with open_seat(APIS[0], faulty(kind="status", code=429, headers=headers)) as seat:
        failure = (await seat.ask()).failure
    assert 27 < failure.retry_after_s <= 30


@pytest.mark.sample(11)
@EVERY_API
@MODES
@pytest.mark.parametrize("code", [500, 502, 503, 504, 529])
async def test_server_error_is_worth_repeating(api, stream, code):
    async with open_seat(api, faulty(kind="status", code=code)) as seat:
        failure = (await seat.ask(stream=stream)).failure
    assert (failure.kind, failure.retryable, failure.status) == ("overloaded", True, code)


@pytest.mark.sample(13)
@EVERY_API
@MODES
@pytest.mark.parametrize(
    ("code", "kind"),
    [(400, "request"), (401, "auth"), (403, "auth"), (404, "missing"), (413, "overflow"), (422, "request")],
)
async def test_client_error_is_final_and_clear(api, stream, code, kind):
    body = {"error": {"message": f"no way, {KEY}", "type": "odd"}}
    async with open_seat(api, faulty(kind="status", code=code, body=body)) as seat:
        reply = await seat.ask(stream=stream)
    assert (reply.failure.kind, reply.failure.retryable) == (kind, False)
    assert reply.failure.message.startswith(f"mock/mock-1: HTTP {code} (request req_mock): odd: no way, [key]; ")
    assert reply.message.error_message == reply.failure.message
    assert len(seat.server.requests) == 1
    assert KEY not in repr(reply)


@EVERY_API
@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("http://127.0.0.1:1", "cannot connect to 127.0.0.1:1"),
        ("http://no-such-host.invalid", "cannot find the host no-such-host.invalid"),
    ],
    ids=["refused", "unknown host"],
)
async def test_unreachable_provider_is_network(api, base_url, words):
    async with open_seat(api, [], base_url=base_url) as seat:
        failure = (await seat.ask()).failure
    assert (failure.kind, failure.retryable) == ("network", True)
    assert words in failure.message


async def test_plain_server_behind_https_is_network():
    async def answer(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with server, open_seat(APIS[0], [], base_url=f"https://127.0.0.1:{port}") as seat:
        failure = (await seat.ask()).failure
    assert (failure.kind, failure.retryable) == ("network", True)
    assert "no secure connection" in failure.message


async def test_dead_proxy_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with open_seat(APIS[1], [], base_url="http://model.example/v1") as seat:
        failure = (await seat.ask()).failure
    assert (failure.kind, failure.retryable) == ("network", True)
    assert "cannot reach the proxy for model.example" in failure.message


@pytest.mark.parametrize("base_url", ["", "ftp://x", "nonsense", "http://"])
async def test_bad_base_url_is_explained(base_url):
    async with open_seat(APIS[0], [], base_url=base_url or "about:blank") as seat:
        failure = (await seat.ask()).failure
    assert (failure.kind, failure.retryable) == ("request", False)
    assert "is not an http(s) address" in failure.message


@EVERY_API
@MODES
async def test_missing_headers_time_out(api, stream):
    async with open_seat(api, faulty(kind="no_headers"), timing=QUICK) as seat:
        failure = (await seat.ask(stream=stream)).failure
    assert failure == Failure(
        "timeout",
        "mock/mock-1: no answer within 0.2 s; raise the setting httpIdleTimeoutMs to wait longer",
        retryable=True,
    )


@pytest.mark.sample(9)
@EVERY_API
@pytest.mark.parametrize("position", POSITIONS)
async def test_silent_stream_is_stalled(api, position):
    async with open_seat(api, faulty(kind="stall", at=position), timing=QUICK) as seat:
        reply = await asyncio.wait_for(seat.ask(), 3)
    _assert_broken(reply, "stalled", api, position)


@EVERY_API
async def test_comments_are_no_events(api):
    fault = {"kind": "comments", "at": "mid_text", "interval_ms": 20, "text": ": ping\n\n"}
    async with open_seat(api, faulty(**fault), timing=QUICK) as seat:
        reply = await asyncio.wait_for(seat.ask(), 3)
    assert reply.failure.kind == "stalled"


async def test_pings_are_no_events():
    ping = 'event: ping\ndata: {"type": "ping"}\n\n'
    fault = {"kind": "comments", "at": "mid_text", "interval_ms": 20, "text": ping}
    async with open_seat(APIS[0], faulty(**fault), timing=QUICK) as seat:
        reply = await asyncio.wait_for(seat.ask(), 3)
    assert reply.failure.kind == "stalled"


@EVERY_API
async def test_idle_limit_can_be_off(api):
    timing = Timing(idle_s=0, total_s=0.4)
    async with open_seat(api, faulty(kind="stall", at="mid_text"), timing=timing) as seat:
        reply = await asyncio.wait_for(seat.ask(), 3)
    advice = "raise the setting retry.provider.timeoutMs to wait longer"
    assert reply.failure == Failure(
        "timeout", f"mock/mock-1: the reply was not finished within 0.4 s; {advice}", retryable=True
    )


@pytest.mark.sample(13)
@EVERY_API
@pytest.mark.parametrize("kind", ["reset", "close"])
@pytest.mark.parametrize("position", POSITIONS)
async def test_broken_connection_keeps_partial_text(api, kind, position):
    async with open_seat(api, faulty(kind=kind, at=position)) as seat:
        reply = await seat.ask()
    _assert_broken(reply, "network", api, position)


@pytest.mark.sample(7)
@EVERY_API
@pytest.mark.parametrize("kind", ["reset", "close"])
@pytest.mark.parametrize("position", ["head", "first_byte", "last_byte"])
async def test_broken_whole_reply_is_network(api, kind, position):
    async with open_seat(api, faulty(kind=kind, at=position)) as seat:
        failure = (await seat.ask(stream=False)).failure
    assert (failure.kind, failure.retryable) == ("network", True)


@pytest.mark.sample(9)
@EVERY_API
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "split", "sizes": 1, "interval_ms": 0.01},
        {"kind": "split", "sizes": 40, "seed": 7, "interval_ms": 0.01},
        {"kind": "crlf"},
        {"kind": "crlf", "mix": True},
        {"kind": "bom"},
    ],
    ids=["bytes", "random", "crlf", "mixed", "bom"],
)
async def test_odd_framing_changes_nothing(api, fault):
    async with open_seat(api, [REPLY]) as seat:
        expected = await seat.ask()
    async with open_seat(api, faulty(**fault)) as seat:
        assert await seat.ask() == expected


@EVERY_API
@pytest.mark.parametrize("text", ['data: {"type": "brand.new"}\n\n', "event: x\nid: 3\nretry: 5\n\n"])
async def test_unknown_events_are_skipped(api, text):
    async with open_seat(api, [REPLY]) as seat:
        expected = await seat.ask()
    async with open_seat(api, faulty(kind="garbage", at="after_call", text=text, then="continue")) as seat:
        assert await seat.ask() == expected


@EVERY_API
@MODES
async def test_unreadable_answer_is_protocol(api, stream):
    async with open_seat(api, faulty(kind="garbage", at="mid_text")) as seat:
        failure = (await seat.ask(stream=stream)).failure
    assert (failure.kind, failure.retryable) == ("protocol", True)


@pytest.mark.sample(9)
@EVERY_API
@pytest.mark.parametrize("position", POSITIONS)
async def test_clean_close_is_truncated(api, position):
    async with open_seat(api, faulty(kind="no_terminal", at=position)) as seat:
        reply = await seat.ask()
    _assert_broken(reply, "truncated", api, position)


@EVERY_API
@MODES
async def test_web_page_is_no_reply(api, stream):
    page = "<html><title>Sign in</title></html>"
    fault = {"kind": "status", "code": 200, "body": page, "headers": {"content-type": "text/html"}}
    async with open_seat(api, faulty(**fault)) as seat:
        failure = (await seat.ask(stream=stream)).failure
    assert failure.kind == "protocol"
    assert "Sign in" in failure.message
    assert "base URL" in failure.message


@pytest.mark.parametrize("at", ["mid_text", "last_byte"])
async def test_stream_may_end_where_finish_is_unknown(at):
    compat = {"supportsFinishReason": False}
    async with open_seat(
        APIS[1], [{"text": "abcdefgh", "chunk_chars": 4, "fault": {"kind": "no_terminal", "at": at}}], compat=compat
    ) as seat:
        assert (await seat.ask()).message.stop_reason == "stop"
    async with open_seat(
        APIS[1], [{"text": "abcdefgh", "chunk_chars": 4, "fault": {"kind": "reset", "at": "mid_text"}}], compat=compat
    ) as seat:
        assert (await seat.ask()).failure.kind == "network"


@pytest.mark.sample(9)
@EVERY_API
@pytest.mark.parametrize("error", ["overloaded", "rate"])
@pytest.mark.parametrize("position", ["first_byte", "mid_text", "after_call"])
async def test_error_event_ends_the_stream(api, error, position):
    fault = {"kind": "error_event", "at": position, "error": error, "message": f"busy {KEY}"}
    async with open_seat(api, faulty(**fault)) as seat:
        reply = await seat.ask()
    assert (reply.failure.kind, reply.failure.retryable) == (error, True)
    assert "busy [key]" in reply.failure.message
    assert KEY not in repr(reply)


@EVERY_API
async def test_plain_answer_to_streamed_request(api):
    # A success of JSON type instead of events: either a whole reply, or an error.
    body = {"error": {"type": "overloaded_error", "code": 503, "message": "later", "status": "UNAVAILABLE"}}
    async with open_seat(api, faulty(kind="status", code=200, body=body)) as seat:
        failure = (await seat.ask()).failure
    assert (failure.kind, failure.retryable) == ("overloaded", True)


BAD_ARGS = {
    "cut off": '{"path": "a',
    "no json": "{path: a}",
    "array": "[1, 2]",
    "string": '"text"',
    "nan": '{"path": NaN}',
    "duplicate": '{"path": "a", "path": "b"}',
    "surrogate": '{"path": "\\ud800"}',
    "deep": '{"a":' * 1500 + "1" + "}" * 1500,
    "deep enough to send": '{"a":' * 400 + "1" + "}" * 400,
}
WRITES_ARGUMENTS = ("anthropic-messages", "openai-completions", "openai-responses")


@pytest.mark.sample(10)
@pytest.mark.parametrize("api", WRITES_ARGUMENTS)
@pytest.mark.parametrize("name", BAD_ARGS)
async def test_bad_arguments_become_a_fault(api, name):
    reply_with_call = {"text": "t", "calls": [{"name": "read", "id": "one"}]}
    async with open_seat(api, [{**reply_with_call, "fault": {"kind": "bad_args", "text": BAD_ARGS[name]}}]) as seat:
        reply = await seat.ask()
    call = reply.message.calls[0]
    assert call.arguments == ({"path": "b"} if name == "duplicate" else {})
    assert list(reply.faults) == [call.id]
    assert "the tool was not run" in reply.faults[call.id]
    assert reply.message.stop_reason == "toolUse"


@pytest.mark.sample(13)
@EVERY_API
@MODES
@pytest.mark.parametrize("name", ["array", "string", "nan", "surrogate", "deep enough to send"])
async def test_bad_arguments_fault_in_each_format(api, stream, name):
    reply_with_call = {"text": "t", "calls": [{"name": "read", "id": "one"}]}
    async with open_seat(api, [{**reply_with_call, "fault": {"kind": "bad_args", "text": BAD_ARGS[name]}}]) as seat:
        reply = await seat.ask(stream=stream)
    assert list(reply.faults) == [reply.message.calls[0].id]
    assert reply.message.calls[0].arguments == {}


@EVERY_API
@MODES
async def test_endless_nesting_never_crashes(api, stream):
    fault = {"kind": "bad_args", "text": BAD_ARGS["deep"]}
    async with open_seat(api, [{"calls": [{"name": "read", "id": "one"}], "fault": fault}]) as seat:
        reply = await seat.ask(stream=stream)
    assert reply.faults or (reply.failure.kind, reply.failure.retryable) == ("protocol", True)


@EVERY_API
@MODES
async def test_huge_arguments_are_taken(api, stream):
    fault = {"kind": "bad_args", "size": 2_000_000}
    async with open_seat(api, [{"calls": [{"name": "read", "id": "one"}], "fault": fault}]) as seat:
        reply = await seat.ask(stream=stream)
    assert len(reply.message.calls) == 1
    assert reply.failure is None


@EVERY_API
@MODES
async def test_duplicate_ids_are_made_unique(api, stream):
    async with open_seat(api, [{**REPLY, "fault": {"kind": "duplicate_ids"}}, {"text": "ok"}]) as seat:
        reply = await seat.ask(stream=stream)
    ids = [call.id for call in reply.message.calls]
    assert len(set(ids)) == len(ids) == 2


@EVERY_API
@MODES
async def test_empty_ids_are_filled(api, stream):
    calls = [{"name": "read", "id": ""}, {"name": "read", "id": ""}]
    async with open_seat(api, [{"calls": calls}]) as seat:
        reply = await seat.ask(stream=stream)
    ids = [call.id for call in reply.message.calls]
    assert all(ids)
    assert len(set(ids)) == 2


@pytest.mark.sample(9)
@EVERY_API
@MODES
@pytest.mark.parametrize("text", [None, "", "  \n"])
async def test_empty_reply_is_a_reply(api, stream, text):
    fault = {"kind": "empty"} if text is None else {"kind": "empty", "text": text}
    async with open_seat(api, [{"text": "x", "fault": fault}]) as seat:
        reply = await seat.ask(stream=stream)
    assert reply.failure is None
    assert reply.message.stop_reason == "stop"
    assert reply.message.text.strip() == ""


@EVERY_API
@MODES
async def test_length_stop_faults_the_last_call(api, stream):
    async with open_seat(api, [{**REPLY, "stop": "length"}]) as seat:
        reply = await seat.ask(stream=stream)
    assert reply.message.stop_reason == "length"
    assert list(reply.faults) == [reply.message.calls[-1].id]


@EVERY_API
@MODES
async def test_refusal_keeps_its_text(api, stream):
    async with open_seat(api, [{"text": "I would rather not.", "stop": "refusal"}]) as seat:
        reply = await seat.ask(stream=stream)
    assert (reply.failure.kind, reply.failure.retryable) == ("refused", False)
    assert (reply.message.text, reply.message.stop_reason) == ("I would rather not.", "error")


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-completions", "google-generative-ai"])
@MODES
async def test_unknown_stop_reason_is_kept(api, stream):
    async with open_seat(api, [{"text": "hm", "raw_stop": "brand_new"}]) as seat:
        message = (await seat.ask(stream=stream)).message
    assert (message.stop_reason, message.raw_stop_reason, message.text) == ("stop", "brand_new", "hm")


@EVERY_API
@MODES
async def test_overflow_is_recognised(api, stream):
    async with open_seat(api, [{"error": {"kind": "overflow", "message": "too long", "status": 400}}]) as seat:
        failure = (await seat.ask(stream=stream)).failure
    assert (failure.kind, failure.retryable) == ("overflow", False)


@EVERY_API
@MODES
async def test_huge_reply_is_cut_off(api, stream):
    async with open_seat(api, [{"text": "x", "fault": {"kind": "huge", "mb": 20, "chunk_chars": 100_000}}]) as seat:
        reply = await seat.ask(stream=stream)
    text = reply.message.text
    assert (reply.failure, reply.message.stop_reason) == (None, "length")
    assert REPLY_LIMIT_CHARS < len(text) < REPLY_LIMIT_CHARS + 200
    assert text.endswith("it is longer than 8 MiB.]")


@pytest.mark.sample(7)
@EVERY_API
@MODES
@pytest.mark.parametrize("kind", ["no_usage", "absurd_usage"])
async def test_senseless_usage_counts_as_nothing(api, stream, kind):
    async with open_seat(api, faulty(kind=kind)) as seat:
        usage = (await seat.ask(stream=stream)).message.usage
    assert (usage.input, usage.output, usage.cache_read, usage.total_tokens, usage.cost.total) == (0, 0, 0, 0, 0)


@EVERY_API
async def test_trickle_is_not_idle(api):
    timing = Timing(idle_s=0.5)
    async with open_seat(api, [{"text": "slow but steady", "chunk_chars": 1, "chunk_ms": 60}], timing=timing) as seat:
        reply = await seat.ask()
    assert reply.message.text == "slow but steady"


@pytest.mark.sample(9)
@EVERY_API
@MODES
@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_redirect_is_not_followed(api, stream, code):
    async with open_seat(api, []) as other:
        location = f"{other.server.url}/stolen?key={KEY}"
        async with open_seat(api, faulty(kind="redirect", code=code, location=location)) as seat:
            failure = (await seat.ask(stream=stream)).failure
        assert other.server.requests == []
    assert (failure.kind, failure.retryable, failure.status) == ("protocol", False, code)
    assert KEY not in failure.message


@EVERY_API
async def test_refusals_hold_all_runs_back(api):
    script = [{"text": "ok", "fault": {"kind": "status", "code": 429, "headers": {"retry-after": "3"}, "times": 8}}]
    async with open_seat(api, script) as seat:
        first = await asyncio.gather(*(seat.ask(watch=False) for _ in range(8)))
        clock = seat.governor._clock
        before = clock.steady_s()
        second = await asyncio.gather(*(seat.ask(watch=False) for _ in range(8)))
    assert {reply.failure.kind for reply in first} == {"rate"}
    assert [reply.message.text for reply in second] == ["ok"] * 8
    assert clock.steady_s() - before >= 3


def _assert_broken(reply, kind, api, position):
    if position == "last_byte" and reply.failure is None:
        # The byte that is missing is the line end after the last event: the reply is whole, and is taken.
        assert reply.message.text == REPLY["text"]
        assert len(reply.message.calls) == 2
        return
    assert (reply.failure.kind, reply.failure.retryable) == (kind, True)
    assert reply.message.stop_reason == "error"
    assert REPLY["text"].startswith(reply.message.text)
    if position in ("mid_text", "mid_args", "after_call"):
        assert any(type(block) is TextContent and block.text for block in reply.message.content)

import json
from typing import Any

import pytest

from retinue.testing import MockServer
from tests.unit.testing.wire_reader import APIS, PLAINS, Response, ask, hear, read_events

EVERY_API = pytest.mark.parametrize("api", APIS)
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
TEXT = "The quick brown fox jumps over the lazy dog"
CALL = {"name": "read", "arguments": {"path": "a-long-name-of-a-file.py"}}
REPLY: dict[str, Any] = {"text": TEXT, "calls": [CALL, {"name": "ls"}]}
PLACES = ["first_byte", "mid_text", "mid_args", "after_call", "last_byte"]
ENDS = {"reset": "reset", "close": "closed", "stall": "silent"}


async def play(api: str, fault: Any, *, stream: bool = True) -> Response:
    is_silent = fault["kind"] in ("stall", "comments", "trickle", "no_headers")
    async with MockServer([{**REPLY, "fault": fault}]) as server:
        return await ask(server, api, stream=stream, silence_s=0.3 if is_silent else 10)


async def get_whole(api: str, fault: Any = None, stream: bool = True) -> bytes:
    extra = {} if fault is None else {"fault": fault}
    async with MockServer([{**REPLY, **extra}]) as server:
        return (await ask(server, api, stream=stream)).body


def read_partial(body: bytes) -> str:
    """Everything readable in a stream that may be cut off."""
    whole, _, _ = body.rpartition(b"\n\n")
    return json.dumps([data for _, data in read_events(whole + b"\n\n")]) if whole else ""


@pytest.mark.sample(17)
@EVERY_API
@pytest.mark.parametrize("kind", list(ENDS))
@pytest.mark.parametrize("at", PLACES)
async def test_stream_breaks_where_told(api: str, kind: str, at: str) -> None:
    response = await play(api, {"kind": kind, "at": at})
    seen = read_partial(response.body)
    assert (response.status, response.end) == (200, ENDS[kind])
    assert ("The quick" in seen) == (at != "first_byte")
    assert ("dog" in seen) == (at in ("mid_args", "after_call", "last_byte"))
    assert ("file.py" in seen) == (at in ("after_call", "last_byte"))
    assert '"ls"' not in seen or at == "last_byte"


@EVERY_API
@pytest.mark.parametrize("kind", list(ENDS))
async def test_plain_body_breaks_short(api: str, kind: str) -> None:
    response = await play(api, {"kind": kind, "at": "mid_text"}, stream=False)
    assert (response.status, response.end) == (200, ENDS[kind])
    assert 0 < len(response.body) < int(response.headers["content-length"])


@pytest.mark.parametrize("kind", list(ENDS))
async def test_break_before_any_byte(kind: str) -> None:
    response = await play(APIS[0], {"kind": kind, "at": "head"})
    assert (response.status, response.end) == (0, ENDS[kind])


async def test_byte_offset_is_exact() -> None:
    response = await play(APIS[0], {"kind": "close", "at": {"byte": 17}})
    assert response.body == (await get_whole(APIS[0]))[:17]


@EVERY_API
@MODES
async def test_status_fault_then_reply(api: str, stream: bool) -> None:
    faults = [
        {"kind": "status", "code": 429, "headers": {"retry-after": "2"}, "times": 1},
        {"kind": "status", "code": 503, "body": {"odd": True}, "times": 2},
    ]
    async with MockServer([{**REPLY, "fault": faults}]) as server:
        seen = [await ask(server, api, stream=stream) for _ in range(4)]
        other = await ask(server, api, stream=stream, user="another conversation")
    assert [one.status for one in seen] == [429, 503, 503, 200]
    assert (seen[0].headers["retry-after"], seen[1].json, hear(api, seen[3]).text) == ("2", {"odd": True}, TEXT)
    assert other.status == 429


@EVERY_API
async def test_comments_go_on_for_ever(api: str) -> None:
    response = await play(api, {"kind": "comments", "at": "mid_text", "interval_ms": 10})
    assert response.end == "silent"
    assert response.body.count(b": still here\n\n") > 5 and b"lazy dog" not in response.body


async def test_pings_can_be_given() -> None:
    ping = 'event: ping\ndata: {"type": "ping"}\n\n'
    response = await play(APIS[0], {"kind": "comments", "interval_ms": 10, "text": ping})
    assert len(response.chunks) > 3 and set(response.chunks) == {ping.encode()}


@EVERY_API
@MODES
async def test_garbage_comes_and_ends(api: str, stream: bool) -> None:
    response = await play(api, {"kind": "garbage", "at": "mid_text", "text": "\x00oops"}, stream=stream)
    assert response.end == "complete" and response.body.endswith(b"\x00oops")


async def test_garbage_can_go_on() -> None:
    fault = {"kind": "garbage", "at": "first_byte", "text": "event: odd\ndata: {}\n\n", "then": "continue"}
    assert await get_whole(APIS[0], fault) == b"event: odd\ndata: {}\n\n" + await get_whole(APIS[0])


@EVERY_API
@MODES
@pytest.mark.parametrize("fault", [{"kind": "split"}, {"kind": "split", "sizes": 9, "seed": 4}])
async def test_split_keeps_every_byte(api: str, stream: bool, fault: dict[str, Any]) -> None:
    response = await play(api, fault, stream=stream)
    assert response.body == await get_whole(api, stream=stream)
    sizes = {len(chunk) for chunk in response.chunks}
    assert not stream or (sizes == {1} if "seed" not in fault else max(sizes) == 9 and len(sizes) > 5)


@EVERY_API
async def test_crlf_changes_line_ends(api: str) -> None:
    whole = await get_whole(api)
    assert await get_whole(api, {"kind": "crlf"}) == whole.replace(b"\n", b"\r\n")
    mixed = await get_whole(api, {"kind": "crlf", "mix": True})
    assert mixed.replace(b"\r\n", b"\n") == whole and b"}\n\n" in mixed and b"}\r\n\r\n" in mixed


@EVERY_API
@MODES
async def test_bom_comes_first(api: str, stream: bool) -> None:
    assert await get_whole(api, {"kind": "bom"}, stream) == b"\xef\xbb\xbf" + await get_whole(api, stream=stream)


@EVERY_API
async def test_no_terminal_ends_cleanly(api: str) -> None:
    response = await play(api, {"kind": "no_terminal"})
    events = read_events(response.body)
    whole = read_events(await get_whole(api))
    dropped = {"anthropic-messages": 2, "openai-completions": 3}.get(api, 1)
    assert response.end == "complete" and [name for name, _ in events] == [name for name, _ in whole[:-dropped]]


async def test_last_event_alone_can_lack() -> None:
    response = await play(APIS[0], {"kind": "no_terminal", "at": "last_byte"})
    assert (response.end, read_events(response.body)[-1][0]) == ("complete", "message_delta")


ERRORS = {
    "anthropic-messages": ("error", {"type": "overloaded_error", "message": "busy"}),
    "openai-completions": ("", {"message": "busy", "type": "server_error", "param": None, "code": None}),
    "openai-responses": ("response.failed", {"code": "server_error", "message": "busy"}),
    "google-generative-ai": ("", {"code": 503, "message": "busy", "status": "UNAVAILABLE"}),
}


@EVERY_API
async def test_error_event_ends_stream(api: str) -> None:
    response = await play(api, {"kind": "error_event", "at": "mid_text", "error": "overloaded", "message": "busy"})
    name, data = read_events(response.body)[-1]
    assert (name, data.get("response", data)["error"]) == ERRORS[api]
    assert (response.status, response.end) == (200, "complete")


@EVERY_API
async def test_error_in_plain_body(api: str) -> None:
    response = await play(api, {"kind": "error_event", "error": "rate", "message": "slow"}, stream=False)
    assert (response.status, response.json["error"]["message"]) == (200, "slow")


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        ({}, '{"path": "cut o'),
        ({"text": "[NaN, 1"}, "[NaN, 1"),
        ({"depth": 3}, '{"path":[[[]]]}'),
        ({"size": 5}, '{"path":"xxxxx"}'),
    ],
)
async def test_bad_arguments_are_literal(fault: dict[str, Any], arguments: str) -> None:
    response = await play(APIS[1], {"kind": "bad_args", **fault}, stream=False)
    calls = response.json["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [arguments, arguments]


async def test_deep_arguments_stream_inline() -> None:
    response = await play("google-generative-ai", {"kind": "bad_args", "depth": 5000})
    assert b'"args":{"path":' + b"[" * 5000 in response.body


@MODES
async def test_trickle_sends_single_bytes(stream: bool) -> None:
    response = await play(APIS[0], {"kind": "trickle", "interval_ms": 20}, stream=stream)
    assert response.end == "silent"
    assert 3 <= len(response.body) <= 17 and (not stream or all(len(chunk) == 1 for chunk in response.chunks))


@EVERY_API
@MODES
async def test_redirect_names_location(api: str, stream: bool) -> None:
    response = await play(api, {"kind": "redirect", "location": "http://127.0.0.1:1/x"}, stream=stream)
    assert (response.status, response.headers["location"]) == (307, "http://127.0.0.1:1/x")


async def test_headers_never_come() -> None:
    assert await play(APIS[0], {"kind": "no_headers"}) == Response(end="silent")


@EVERY_API
@MODES
async def test_huge_text_is_complete(api: str, stream: bool) -> None:
    async with MockServer([{**REPLY, "fault": {"kind": "huge", "mb": 0.2, "chunk_chars": 500}}]) as server:
        response = await ask(server, api, stream=stream, silence_s=10)
    if api == "openai-responses" and stream:
        events = read_events(response.body)
        deltas = [data["delta"] for name, data in events if name == "response.output_text.delta"]
        heard = PLAINS[api](events[-1][1]["response"])
        assert "".join(deltas) == heard.text
    else:
        heard = hear(api, response)
    assert (heard.text, len(heard.calls)) == ("x" * 200_000, 2)


@EVERY_API
@MODES
async def test_usage_can_lack(api: str, stream: bool) -> None:
    response = await play(api, {"kind": "no_usage"}, stream=stream)
    assert (response.end, b"usage" in response.body.replace(b'"usage":null', b"")) == ("complete", False)


@EVERY_API
@MODES
async def test_usage_can_be_absurd(api: str, stream: bool) -> None:
    usage = {"input": -5, "output": 10**15}
    heard = hear(api, await play(api, {"kind": "absurd_usage", "usage": usage}, stream=stream))
    assert heard.usage == (-5, 10**15, 0, 0)


@EVERY_API
@pytest.mark.parametrize("call_id", ["twin", ""])
async def test_ids_can_be_same(api: str, call_id: str) -> None:
    response = await play(api, {"kind": "duplicate_ids", "id": call_id})
    seen = response.body.count(f'id":"{call_id}"'.encode())
    assert response.end == "complete" and seen >= 2


@EVERY_API
@MODES
async def test_reply_can_be_empty(api: str, stream: bool) -> None:
    heard = hear(api, await play(api, {"kind": "empty"}, stream=stream))
    assert (heard.text, heard.calls, heard.usage) == ("", [], (0, 0, 0, 0))


ERROR_STATUSES = [
    ("rate", 429),
    ("overloaded", 503),
    ("auth", 401),
    ("missing", 404),
    ("request", 400),
    ("overflow", 400),
]


@EVERY_API
@pytest.mark.parametrize(("kind", "status"), ERROR_STATUSES)
async def test_error_becomes_a_status(api: str, kind: str, status: int) -> None:
    error = {"kind": kind, "message": "why", "retry_after_s": 1.5, "times": 1}
    async with MockServer([{"text": "fine", "error": error}]) as server:
        failed = await ask(server, api, stream=True)
        then = await ask(server, api, stream=True)
    message = failed.json["error"]["message"]
    assert (failed.status, failed.headers["retry-after"], hear(api, then).text) == (status, "1.5", "fine")
    assert message == "why" or (kind == "overflow" and "token" in message)


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("network", (0, "reset")),
        ("timeout", (0, "silent")),
        ("stalled", (200, "silent")),
        ("protocol", (200, "complete")),
    ],
)
async def test_error_becomes_a_fault(kind: str, end: tuple[int, str]) -> None:
    async with MockServer([{"error": {"kind": kind}}]) as server:
        response = await ask(server, APIS[0], stream=True, silence_s=0.3)
    assert (response.status, response.end) == end


@EVERY_API
async def test_error_follows_the_text(api: str) -> None:
    async with MockServer([{"text": TEXT, "error": {"kind": "overloaded", "message": "busy"}}]) as server:
        response = await ask(server, api, stream=True)
    assert TEXT.encode() in response.body and b"busy" in response.body.rpartition(b"\n\n")[0].rpartition(b"data: ")[2]

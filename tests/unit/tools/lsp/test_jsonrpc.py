import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.tools.lsp.jsonrpc import Frames, JsonRpcClient, LspFailed


def frame(message: dict) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


MESSAGES = [{"id": 1, "result": None}, {"method": "x", "params": {"text": "ä€😀"}}, {"id": 2, "result": [1, 2]}]
STREAM = b"".join(map(frame, MESSAGES))


@pytest.mark.sample(23)
@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_stream_is_cut_anywhere(cut):
    frames = Frames()
    assert [*frames.feed(STREAM[:cut]), *frames.feed(STREAM[cut:])] == MESSAGES


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_garbage_ends_the_talk(pieces):
    client = JsonRpcClient(lambda data: None, lambda method, params: None, lambda method, params: None)
    for piece in pieces:
        client.take(piece)
    assert isinstance(client.over, str)


async def test_ended_talk_answers_nobody():
    client = JsonRpcClient(lambda data: None, lambda method, params: None, lambda method, params: None)
    client.end("it is gone")
    with pytest.raises(LspFailed, match="it is gone"):
        await client.ask("x", None, 1)


def test_answer_to_nobody_is_dropped():
    heard = []
    client = JsonRpcClient(heard.append, lambda method, params: None, lambda method, params: heard.append(method))
    assert not client.take(frame({"id": 7, "result": 1}) + frame({"id": "x", "error": 2}) + frame({}))
    assert heard == []

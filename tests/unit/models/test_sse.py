import random

import pytest

from retinue.models.sse import EventTooLong, SseParser

STREAM = (
    "\ufeff: hello\r\n\r\n"
    'event: start\ndata: {"a": "ä漢🙂"}\n\n'
    "data: one\r\ndata: two\r\n\r\n"
    "id: 7\rretry: 100\rdata:tight\r\r"
    ":\n\n\n\n"
    "event: nothing\n\n"
    "data\n\n"
    "data:  two spaces\n\n"
    "data: [DONE]\n\n"
    "data: no end"
).encode()
PAYLOADS = ['{"a": "ä漢🙂"}'.encode(), b"one\ntwo", b"tight", b" two spaces", b"[DONE]", b"no end"]


def parse(chunks):
    parser = SseParser()
    found = [payload for chunk in chunks for payload in parser.feed(chunk)]
    return found + parser.flush()


def test_whole_stream_is_parsed():
    assert parse([STREAM]) == PAYLOADS


def test_ten_thousand_splits_agree():
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    for _ in range(10_000):
        cuts = sorted(dice.sample(range(1, len(STREAM)), dice.randint(0, 40)))
        chunks = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
        assert parse(chunks) == PAYLOADS, f"seed {seed}, cuts {cuts}"


def test_single_bytes_agree():
    assert parse([STREAM[i : i + 1] for i in range(len(STREAM))]) == PAYLOADS


def test_empty_chunks_change_nothing():
    assert parse([b"", b"data: a\r", b"", b"\n\r", b"\n", b""]) == [b"a"]


def test_event_comes_with_its_blank_line():
    parser = SseParser()
    assert [parser.feed(chunk) for chunk in (b"data: a\n", b"\n", b"data: b\n\ndata: c")] == [[], [b"a"], [b"b"]]
    assert parser.flush() == [b"c"]


def test_endless_event_is_refused():
    parser = SseParser(limit_bytes=1000)
    with pytest.raises(EventTooLong):
        for _ in range(100):
            parser.feed(b"data: " + b"x" * 50)

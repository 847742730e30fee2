import json

import pytest

from retinue.engine.external import output as stream
from retinue.engine.external.output import Stream


def read(*parts: bytes) -> tuple[list, list, Stream]:
    records, pieces = [], []
    made = Stream(records.append, lambda kind, line: pieces.append(kind))
    for part in parts:
        made.feed(part)
    made.close()
    return records, pieces, made


LINES = b'{"type":"a"}\n\n{"type":"message_update","x":1}\r\nplain\n{ "type" : "queue_update" }\n[1]\n{"type":"b"}'


def test_cuts_change_nothing():
    whole = read(LINES)[:2]
    assert whole == ([{"type": "a"}, {"type": "b"}], ["message_update", "queue_update"])
    for cut in range(len(LINES)):
        assert read(LINES[:cut], LINES[cut:])[:2] == whole


def test_plain_text_is_kept_without_objects():
    assert read(b" one\n[1]\ntwo")[2].plain == "one\n[1]\ntwo"
    assert read(b"one\n" + LINES)[2].plain == ""


def test_kind_may_stand_anywhere():
    assert read(b'{"x":{"type":"a"},"type":"message_update"}\n')[:2] == ([], ["message_update"])


@pytest.mark.parametrize("line", [b"\xff\xfe", b"{" * 5000, b'{"type":', b"[" * 100_000, b'{"a":1e999}', b"\0"])
def test_odd_lines_do_no_harm(line):
    records, _, made = read(line + b'\n{"type":"a"}\n')
    assert (records[-1], made.exceeded) == ({"type": "a"}, "")


def test_each_limit_is_exact(monkeypatch):
    monkeypatch.setattr(stream, "MAX_RECORDS", 2)
    monkeypatch.setattr(stream, "MAX_PIECES", 2)
    assert read(b"{}\n" * 2)[2].exceeded == ""
    assert read(b"{}\n" * 3)[2].exceeded.startswith("persisted JSONL line")
    assert read(b'{"type":"message_start"}\n' * 2)[2].exceeded == ""
    assert read(b'{"type":"message_start"}\n' * 3)[2].exceeded.startswith("transient JSONL line")
    assert [Stream(print, print).feed(b"{}\n" * count) for count in (2, 3)] == [False, True]


def test_endless_line_is_cut_off(monkeypatch):
    monkeypatch.setattr(stream, "MAX_STDOUT", 1000)
    made = Stream(lambda record: None, lambda kind, line: None)
    assert [made.feed(b"x" * 500), made.feed(b"x" * 500), made.feed(b"x")] == [False, False, True]


def test_long_pieces_are_no_output(monkeypatch):
    monkeypatch.setattr(stream, "MAX_STDOUT", 1000)
    piece = json.dumps({"type": "message_update", "x": "y" * 500}).encode() + b"\n"
    assert read(*[piece] * 10)[2].exceeded == ""


def test_long_errors_are_cut_off(monkeypatch):
    monkeypatch.setattr(stream, "MAX_STDERR", 10)
    made = Stream(lambda record: None, lambda kind, line: None)
    assert [made.feed_error(b"x" * 10), made.feed_error(b"x")] == [False, True]
    assert (made.exceeded, made.errors) == (stream._STDERR, "x" * 11)

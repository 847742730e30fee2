import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.jsonline import encode_json
from retinue.core.messages import AssistantMessage, CustomMessage, TextContent, ToolCall, Usage, UserMessage
from retinue.sessions import entry
from retinue.sessions.entry import Head, Stamp, decode_entry, decode_head, decode_message, encode_fields

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=10,
)


@given(ANYTHING)
def test_any_value_is_one_ascii_line(value: Any) -> None:
    data = encode_json(value)
    assert data.isascii() and b"\n" not in data and b"\r" not in data
    json.loads(data)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_survives_encoding(text: str) -> None:
    assert msgspec.json.decode(encode_json({"text": text})) == {"text": text}
    assert json.loads(encode_json(UserMessage(text, 1)))["content"] == text


@given(st.binary(max_size=300))
def test_reading_never_raises(line: bytes) -> None:
    decode_head(line)
    decode_entry(line)
    decode_message(line)


@given(ANYTHING, st.sampled_from(["message", "systemMessage", "content", "id", "parentId", "timestamp", "details"]))
def test_odd_fields_never_raise(value: Any, name: str) -> None:
    line = encode_json({"type": "message", "id": "a", "parentId": None, name: value})
    assert decode_entry(line).type == "message"


@given(ANYTHING, st.sampled_from(["content", "usage", "stopReason", "timestamp", "model", "errorMessage", "role"]))
def test_odd_messages_are_mended_or_dropped(value: Any, name: str) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "timestamp": 1, name: value}
    mended = decode_message(encode_json(message))
    assert mended is not None or name == "role"


def test_lone_surrogates_are_replaced() -> None:
    assert encode_json("a\ud800b") == b'"a\\ufffdb"'


def test_deep_values_are_bounded() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert b"nested too deeply" in encode_json({"data": deep})
    # Freed step by step: freeing such a list at once is hard on the interpreter.
    while deep:
        deep = deep.pop()


def test_unknown_blocks_are_left_out() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}, {"type": "hologram"}, {"type": "toolCall", "id": "c", "name": "x"}],
        "stopReason": "newReason",
    }
    expected = AssistantMessage([TextContent("hi"), ToolCall("c", "x", {})], "", "", "", Usage(), "stop", 0)
    assert decode_message(encode_json(message)) == expected


def test_old_role_becomes_custom() -> None:
    old = {"role": "hookMessage", "customType": "t", "content": "x", "display": True, "timestamp": 1}
    assert decode_message(encode_json(old)) == CustomMessage("t", "x", True, 1)


def test_many_small_values_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(entry, "MAX_RECORD_BYTES", 2000)
    message = AssistantMessage([ToolCall("c", "x", {"n": list(range(5000))})], "a", "p", "m", Usage(), "stop", 1)
    line = b'{"type":"message","id":"a",' + encode_fields({"message": message}) + b"}"
    assert len(line) < 2100
    kept = decode_entry(line).message
    assert isinstance(kept, AssistantMessage) and "too many for a session record" in kept.text


def test_stamp_renders_iso_times() -> None:
    stamp = Stamp()
    times = [stamp.render(ms) for ms in (0, 1_700_000_000_001, 1_700_000_000_999, 1_700_000_001_000)]
    assert times == [
        "1970-01-01T00:00:00.000Z",
        "2023-11-14T22:13:20.001Z",
        "2023-11-14T22:13:20.999Z",
        "2023-11-14T22:13:21.000Z",
    ]


def test_head_with_odd_fields_keeps_the_others() -> None:
    lines = ['"parentId": null', '"parentId": "p"', '"parentId": 5', '"other": 1']
    heads = [decode_head(f'{{"type": "message", "id": 1, {line}}}'.encode()) for line in lines]
    assert heads == [Head("message", None, parent) for parent in (None, "p", msgspec.UNSET, msgspec.UNSET)]
    assert decode_head(b'{"type": 3, "id": "a", "parentId": null}') == Head("", "a", None)
    assert decode_head(b"[1]") is None

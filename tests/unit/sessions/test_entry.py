import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import UsageError
from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    Cost,
    CustomMessage,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.sessions import entry
from retinue.sessions.entry import (
    EntryHead,
    EntryIds,
    NewEntry,
    RepairedEntry,
    TimestampFormat,
    check_session_id,
    decode_entry,
    decode_head,
    decode_message,
    decode_object,
    encode_fields,
    make_header,
    render_notes,
    try_decode_head,
)

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
    stamp = TimestampFormat()
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
    assert heads == [EntryHead("message", None, parent) for parent in (None, "p", msgspec.UNSET, msgspec.UNSET)]
    assert decode_head(b'{"type": 3, "id": "a", "parentId": null}') == EntryHead("", "a", None)
    assert decode_head(b"[1]") is None


def test_good_line_needs_no_mending() -> None:
    good = b'{"type":"message","id":"a","parentId":"p"}'
    assert try_decode_head(good) == decode_head(good) == EntryHead("message", "a", "p")
    assert try_decode_head(b'{"type":"message","id":1}') is None


def test_object_that_the_fast_parser_refuses_is_read() -> None:
    assert decode_object(b'{"a": NaN, "b": 1}') == {"a": None, "b": 1}
    assert decode_object(b"[NaN]") is decode_object(b"[1]") is None


def test_header_names_its_format() -> None:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/w"}
    assert make_header("s", "t", "/w", None) == header
    assert make_header("s", "t", "/w", "/p") == {**header, "parentSession": "/p"}


def test_record_has_sixteen_mebibytes_at_most() -> None:
    text = "x" * (16 * 1024 * 1024 - len('"data":""'))
    assert encode_fields({"data": text}) == b'"data":"%s"' % text.encode()
    cut = json.loads(b"{%s}" % encode_fields({"data": text + "x"}))["data"]
    assert cut == "x" * 1024 * 1024 + f"\n[cut here: {len(text) + 1} characters are too long for a record]"


def encode_within(monkeypatch: pytest.MonkeyPatch, most: int, fields: dict[str, Any]) -> Any:
    monkeypatch.setattr(entry, "MAX_RECORD_BYTES", most)
    return json.loads(b"{%s}" % encode_fields(fields))


def test_long_texts_are_cut_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = encode_within(monkeypatch, 1600, {"a": "x" * 101, "b": "y" * 100, "c": "z" * 2000})
    assert [len(kept[name].partition("\n[cut here")[0]) for name in "abc"] == [100, 100, 100]
    assert [name for name in kept if "\n[cut here" in kept[name]] == ["a", "c"]


def test_many_texts_are_cut_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [str(number) * 120 for number in range(10, 30)]
    kept = encode_within(monkeypatch, 2048, {"data": texts})["data"]
    assert [text.partition("\n")[0] for text in kept] == [text[:16] for text in texts]
    refused = encode_within(monkeypatch, 1920, {"data": texts})["data"]
    assert refused.endswith("bytes of small values, too many for a session record]")


def test_what_is_small_stays_beside_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    many = list(range(5000))
    data = {"none": None, "yes": True, "word": "w", "many": many}
    kept = encode_within(monkeypatch, 2000, {"data": data, "list": many, "pair": (1, 2), "number": 5, "usage": Usage()})
    assert kept["data"] == {"none": None, "yes": True, "word": "w"}
    assert "too many for a session record" in kept["list"] and kept["pair"] == kept["list"]
    assert kept["number"] == 5
    message = AssistantMessage([ToolCall("c", "x", {"n": many})], "a", "p", "m", Usage(input=5), "stop", 1)
    stored = encode_within(monkeypatch, 2000, {"message": message})["message"]
    assert (stored["model"], stored["usage"]) == ("m", json.loads(encode_json(Usage())))


USER = {"role": "user", "timestamp": 1}
CALL = {"type": "toolCall", "id": "c", "name": "n"}


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        (5, "a message that is not an object"),
        ({"role": "ghost"}, "a message of role 'ghost'"),
        ({"role": 5}, "a message of role '5'"),
        ({**USER, "content": 5}, "the content of a message of role 'user'"),
        ({**USER, "content": [{"type": "text", "text": 5}]}, "a part of type 'text'"),
        ({**USER, "content": [{"type": "image"}]}, "a part of type 'image'"),
        ({**USER, "content": [{"type": "hologram"}]}, "a part of type 'hologram'"),
        ({"role": "assistant", "content": [{"type": "toolCall", "id": "c"}]}, "a tool call"),
        ({"role": "assistant", "content": [{**CALL, "arguments": 5}]}, "the arguments of a call of 'n'"),
    ],
)
def test_what_is_lost_is_told(message: Any, lost: str) -> None:
    found = decode_entry(encode_json({"type": "message", "id": "a", "message": message}))
    assert isinstance(found, RepairedEntry) and found.lost == (lost,)


def test_rest_of_an_odd_message_is_kept() -> None:
    good, odd = {"type": "text", "text": "hi", "textSignature": 5}, {"type": "text", "text": 5}
    assert decode_message(encode_json({**USER, "content": [odd, good]})) == UserMessage([TextContent("hi")], 1)
    assert decode_message(encode_json({**USER, "content": 5})) == UserMessage([], 1)
    called = decode_message(encode_json({"role": "assistant", "content": [{**CALL, "arguments": 5}]}))
    assert isinstance(called, AssistantMessage) and called.calls == [ToolCall("c", "n", {})]
    entry_without_message = decode_entry(b'{"type":"label","id":5}')
    assert isinstance(entry_without_message, RepairedEntry) and entry_without_message.lost == ()


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"role": "toolResult"}, ToolResultMessage("", "", [], False, 0)),
        ({"role": "toolResult", "isError": 1}, ToolResultMessage("", "", [], True, 0)),
        ({"role": "bashExecution"}, BashExecutionMessage("", "", False, False, 0)),
        ({"role": "custom"}, CustomMessage("", [], False, 0)),
        ({"role": "custom", "customType": "t", "content": "hi", "display": "?"}, CustomMessage("t", "hi", False, 0)),
        ({"role": "compactionSummary"}, CompactionSummaryMessage("", 0, 0)),
        ({"role": "user", "timestamp": "soon"}, UserMessage([], 0)),
        ({"role": "user", "timestamp": 2**62}, UserMessage([], 2**62)),
        ({"role": "user", "timestamp": 2**63}, UserMessage([], 0)),
        ({"role": "user", "timestamp": 5.5}, UserMessage([], 5)),
    ],
)
def test_missing_fields_are_plain(stored: dict[str, Any], message: Any) -> None:
    assert decode_message(encode_json(stored)) == message


@pytest.mark.parametrize(
    ("stored", "usage"),
    [
        (5, Usage()),
        ({"input": 5, "output": None, "cost": None}, Usage(input=5)),
        ({"input": 5, "cost": {"input": 0.5, "output": None}}, Usage(input=5, cost=Cost(input=0.5))),
        ({"input": 5, "cost": {"input": "0.5"}}, Usage(input=5, cost=Cost(input=0.5))),
        ({"input": 5, "cost": {"input": "dear"}}, Usage()),
    ],
)
def test_odd_usage_is_mended(stored: Any, usage: Usage) -> None:
    mended = decode_message(encode_json({"role": "assistant", "usage": stored}))
    assert isinstance(mended, AssistantMessage) and mended.usage == usage


def test_time_before_1970_is_rendered() -> None:
    assert TimestampFormat().render(-500) == "1969-12-31T23:59:59.500Z"


def test_checkpoint_of_an_odd_entry_is_a_system_message() -> None:
    for stored, expected in (
        ({"role": "system", "content": "all"}, SystemMessage("all", 0)),
        ({"role": "user", "content": "all"}, msgspec.UNSET),
    ):
        found = decode_entry(encode_json({"type": "compaction", "id": 5, "systemMessage": stored}))
        assert found.system_message == expected


@pytest.mark.parametrize("session_id", ["a", "7", "a-b_c.d", "x" * 128])
def test_id_may_be_part_of_a_file_name(session_id: str) -> None:
    assert check_session_id(session_id) == session_id


@pytest.mark.parametrize("session_id", ["", "-", "-a", "a-", ".a", "a.", "a/b", "a b", "\u00e4", "x" * 129])
def test_other_ids_are_refused(session_id: str) -> None:
    with pytest.raises(UsageError, match="is not usable: letters, digits"):
        check_session_id(session_id)


@pytest.mark.parametrize("usage", [5, {"cost": {"input": "dear"}}])
def test_odd_part_costs_no_other_field(usage: Any) -> None:
    failed = {"role": "assistant", "usage": usage, "stopReason": "error", "errorMessage": "why"}
    mended = decode_message(encode_json(failed))
    assert isinstance(mended, AssistantMessage)
    assert (mended.usage, mended.stop_reason, mended.error_message) == (Usage(), "error", "why")
    result = decode_message(encode_json({"role": "toolResult", "content": 5, "details": {"n": 1}}))
    assert isinstance(result, ToolResultMessage) and (result.content, result.details) == ([], {"n": 1})


def test_ids_are_eight_digits_and_differ() -> None:
    ids = EntryIds("seed")
    made = [ids.make(()) for _ in range(5000)]
    assert len(set(made)) == 5000 and {len(entry_id) for entry_id in made} == {8}
    assert {(int(later, 16) - int(earlier, 16)) % 2**32 for earlier, later in pairwise(made)} == {0x9E3779B1}
    assert EntryIds("seed").make({made[0], made[1]}) == made[2]
    assert EntryIds("other").make(()) != made[0]


@pytest.mark.parametrize("leaf", [None, "abc", "a-b", 'say "hi"', "ä", ""])
def test_notes_hang_on_each_other(leaf: str | None) -> None:
    lines = render_notes([NewEntry("n1", "label", {"x": 1}, 0), NewEntry("n2", "custom", {"y": [2]}, 1)], leaf)
    assert [(line.entry_id, line.kind, line.data[-2:]) for line in lines] == [
        ("n1", "label", b"}\n"),
        ("n2", "custom", b"}\n"),
    ]
    stamp = "1970-01-01T00:00:00.00"
    assert [json.loads(line.data) for line in lines] == [
        {"type": "label", "id": "n1", "parentId": leaf, "timestamp": f"{stamp}0Z", "x": 1},
        {"type": "custom", "id": "n2", "parentId": "n1", "timestamp": f"{stamp}1Z", "y": [2]},
    ]

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.strictjson import MAX_BYTES, MAX_DEPTH, JsonError, parse_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
PIECES = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', '"a"', "'b'", "1", "-", "1e999", "NaN", "true", "True", "//x\n", "/*", "#",
         "\\", "\\ud800", "\\u12", "\n", "\0", "\ufeff", "é", " ", "\t", "a.b", "01"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


def explain(text: str | bytes, *, comments: bool = False) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(JsonError) as caught:
        parse_json(data, where="f", comments=comments)
    return str(caught.value).splitlines()


def check_outcome(data: bytes, *, comments: bool) -> None:
    try:
        assert isinstance(parse_json(data, where="f", comments=comments), dict)
    except JsonError as error:
        assert error.line >= 1


@given(PIECES, st.booleans())
def test_any_text_gives_object_or_problems(text: str, comments: bool) -> None:
    check_outcome(text.encode(), comments=comments)


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b'{"a":' + tail), st.booleans())
def test_any_bytes_give_object_or_problems(data: bytes, comments: bool) -> None:
    check_outcome(data, comments=comments)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), st.booleans())
def test_good_json_reads_as_itself(value: dict[str, object], ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    assert parse_json(text, where="f") == value


@given(st.dictionaries(st.text(max_size=6), JSON, min_size=1, max_size=4))
def test_careful_reader_agrees_with_fast_one(value: dict[str, object]) -> None:
    # A comment sends the text to the careful reader.
    text = "// x\n" + json.dumps(value, indent=1)
    assert parse_json(text.encode(), where="f", comments=True) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f:1:1: the file is empty; expected an object {…}"),
        ("[1]", "f:1:1: found an array; expected an object {…}"),
        ('"x"', "f:1:1: found a string; expected an object {…}"),
        ("null", "f:1:1: found null; expected an object {…}"),
        ('{"a": 1', "f:1:8: found the end of the file; expected ',' or '}'"),
        ('{"a": "x\n"}', "f:1:7: found a string that does not end on its line"),
        ('{"a": True}', "f:1:7: found 'True'; write true"),
        ('{"a": 01}', "f:1:7: found '01'; expected a value such as true, -1.5 or []"),
        ('{"a": NaN}', "f:1:7: found 'NaN'; expected a value such as true, -1.5 or []"),
        ('{"a": 1e999}', "f:1:7: found '1e999'; the number is too large"),
        ('{"a": ', "f:1:7: found the end of the file; expected a value such as true, -1.5 or []"),
        ('{"a": 1, "a": 2}', "f:1:10: duplicate key 'a'; remove one of them"),
        ('{"a": 1,\n "c": 2 "d": 3}', "f:2:9: found '\"'; expected ',' or '}'"),
        ('{"a" 1}', "f:1:6: found '1' after the key 'a'; expected ':'"),
        ("{b: 1}", "f:1:2: found 'b'; expected a key in double quotes"),
        ("{'b': 1}", 'f:1:2: found a single-quoted string; expected "double quotes"'),
        ('{"a": [1,]}', "f:1:9: found a comma before ']'; JSON allows none after the last item"),
        ('{"a": 1 // why\n}', "f:1:9: found a comment; JSON does not allow comments"),
        ('{"a": "\\q"}', 'f:1:8: found a wrong escape or a control character; write \\" \\\\ \\n \\t or \\u0000'),
        ('{"a": "\\ud800"}', "f:1:7: found half of a surrogate pair (\\ud800 … \\udfff); expected whole characters"),
        ("{}\0", "f:1:3: found '\\x00' after the end of the value; expected nothing more"),
        ("{} x", "f:1:4: found 'x' after the end of the value; expected nothing more"),
        (b'{"a": "\xe9"}', "f:1:8: byte 0xe9 is not UTF-8; expected UTF-8 text"),
        ("{}".encode("utf-16"), "f:1:1: the file is UTF-16; expected UTF-8"),
        (b" " * (MAX_BYTES + 1), f"f:1:1: the file has {MAX_BYTES + 1} bytes; expected at most {MAX_BYTES}"),
        ('{"a":' + "[" * 50_000, f"f:1:{MAX_DEPTH + 5}: nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_mistake_is_named_with_its_place(text: str | bytes, problem: str) -> None:
    assert explain(text) == [problem]


def test_deep_but_allowed_nesting_is_read() -> None:
    deep = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert list(parse_json(f'{{"a":{deep}}}'.encode(), where="f")) == ["a"]


def test_byte_order_mark_is_ignored() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}', where="f") == {"a": 1}


def test_comments_and_last_commas_on_request() -> None:
    text = b'{ // one\n "url": "http://x", "l": [1, 2,], }'
    assert parse_json(text, where="f", comments=True) == {"url": "http://x", "l": [1, 2]}
    assert explain("{ /* no */ }", comments=True) == ["f:1:3: found a comment; only // is accepted"]

import json

import pytest

from retinue.durable.cluster.database import pack_json, to_column, unpack_json

ODD = ["a\0b", "\0", "\\u0000", "\\\0", "\\\\u0000\0", "\ufffe", "\ufffe0", "\ufffem\0", "日本語", ""]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_come_back(text):
    packed = pack_json({"key": text})
    assert unpack_json(packed, dict[str, str]) == {"key": text}
    assert "\0" not in str(json.loads(packed))


def test_half_a_character_is_marked():
    assert unpack_json(pack_json({"a": ["x\ud800y"]}), dict[str, list[str]]) == {"a": ["x\ufffdy"]}


def test_column_holds_what_people_read():
    assert to_column("a\0b\ud800") == "a\ufffdb\ufffd"

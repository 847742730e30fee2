import random

import pytest

from retinue.ui.renderers.reply import MOST_CHARS, SIZE, split_parts

WORDS = ["word ", "\n", "\n\n", "- item\n", "```python\n", "```\n", "    code\n", "# head\n\n", "x" * 400]


def test_short_text_is_one_part():
    assert split_parts("one\n\ntwo") == ["one\n\ntwo"] and split_parts("") == []


def test_code_is_not_torn():
    code = "```\n" + "line\n\n" * 800 + "```\n\n"
    assert split_parts("a\n\n" + code + "b\n\nc") == ["a\n\n" + code, "b\n\nc"]


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_the_text_and_only_the_last_grows(seed):
    pick = random.Random(seed)
    text = "".join(pick.choices(WORDS, k=3000))
    whole, earlier = split_parts(text), split_parts(text[: len(text) // 2])
    assert "".join(whole) == text and max(map(len, whole)) <= 6 * SIZE
    assert whole[: len(earlier) - 1] == earlier[:-1]


@pytest.mark.attack("H6")
def test_endless_line_is_cut():
    parts = split_parts("x" * 10_000_000)
    assert len(parts) < 40 and len("".join(parts)) < MOST_CHARS + 100 and "9700000 more" in parts[-1]

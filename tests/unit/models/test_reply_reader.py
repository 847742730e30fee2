import random

import pytest

from retinue.models.reply_reader import check_arguments, parse_arguments


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("", {}),
        ("null", {}),
        (" \n", {}),
        ("{}", {}),
        ('{"a": [1, {"b": null}], "c": "ä"}', {"a": [1, {"b": None}], "c": "ä"}),
        ('{"a": {"x": 1}, "b": {"x": 2}}', {"a": {"x": 1}, "b": {"x": 2}}),
    ],
)
def test_good_arguments_have_no_fault(raw, parsed):
    assert parse_arguments(raw) == (parsed, "")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"path": "a', "cut off at character"),
        ('{"path": "a", "n": ', "cut off at character 19 of 19"),
        ("{path: 1}", "not valid JSON"),
        ('{"a": NaN}', "at character 6 of 10"),
        ('{"a": 1} tail', "at character 9 of 13, near '{\"a\": 1} tail'"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ("[1]", "must be a JSON object, not an array"),
        ('"x"', "not a string"),
        ("true", "not true"),
        ("3", "not a number"),
        ('{"a":' * 2000 + "1" + "}" * 2000, "nested too deeply"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested too deeply"),
    ],
)
def test_bad_arguments_say_where(raw, words):
    parsed, fault = parse_arguments(raw)
    assert parsed == {}
    assert words in fault
    assert len(fault) < 300


def test_duplicate_key_is_named():
    parsed, fault = parse_arguments('{"a": 1, "b": {"c": 1, "c": 2}}')
    assert parsed == {"a": 1, "b": {"c": 2}}
    assert "the key 'c' twice" in fault


@pytest.mark.parametrize("value", [[], None, "x", {"a": "\ud800"}, {"a": float("nan")}])
def test_parsed_arguments_are_checked(value):
    assert "the tool was not run" in check_arguments(value, strict=True)


def test_any_bytes_are_survived():
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    for _ in range(10_000):
        raw = "".join(dice.choice('{}[]":,\\ua1 nté\ud800') for _ in range(dice.randint(0, 30)))
        parsed, fault = parse_arguments(raw)
        assert isinstance(parsed, dict) and isinstance(fault, str), f"seed {seed}"

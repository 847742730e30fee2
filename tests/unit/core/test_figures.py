import pytest

from retinue.core.figures import count_noun, count_percent, count_tokens, format_duration, format_tokens, format_window
from retinue.core.messages import Usage


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (33_800, "33.8k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (1.2e6, "1.2M"),
    ],
)
def test_tokens_are_short(count, text):
    assert format_tokens(count) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0.0s"),
        (12_340, "12.3s"),
        (59_949, "59.9s"),
        (59_950, "1m 0s"),
        (312_000, "5m 12s"),
        (3_599_400, "59m 59s"),
        (3_900_000, "1h 5m"),
    ],
)
def test_durations_are_short(milliseconds, text):
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(("tokens", "text"), [(512, "512"), (128_000, "128k"), (1_000_000, "1M"), (1_500_000, "1.5M")])
def test_windows_are_round(tokens, text):
    assert format_window(tokens) == text


@pytest.mark.parametrize(
    ("tokens", "window", "percent"), [(0, 100, None), (5, None, None), (5, 0, None), (124, 200, 62), (300, 200, 100)]
)
def test_share_of_a_window(tokens, window, percent):
    assert count_percent(tokens, window) == percent


def test_one_thing_is_singular():
    assert (count_noun(1, "tool use"), count_noun(0, "tool use")) == ("1 tool use", "0 tool uses")


def test_cache_reads_are_not_counted():
    assert count_tokens(Usage(100, 20, 5000, 7, 5127)) == 127

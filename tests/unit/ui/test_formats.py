import pytest

from retinue.core.figures import format_duration, format_tokens
from retinue.ui.formats import clean, clean_line, color_percent, cut_words, find_percent, fold_middle, fold_skill


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0"), (999, "999"), (33_800, "33.8k"), (999_949, "999.9k"), (1_200_000, "1.2M")]
)
def test_tokens_are_short(count, shown):
    assert format_tokens(count) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(0, "0.0s"), (12_345, "12.3s"), (59_960, "1m 0s"), (312_000, "5m 12s"), (3_900_000, "1h 5m")]
)
def test_durations_are_short(ms, shown):
    assert format_duration(ms) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [("one two", 7, "one two"), ("one two three", 9, "one two…"), ("one, two", 6, "one…"), ("unbroken", 5, "unbr…")],
)
def test_words_are_cut_whole(text, limit, shown):
    assert cut_words(text, limit) == shown


def test_hidden_lines_are_counted_once():
    long = "\n".join("x" for _ in range(5000))
    assert fold_middle(clean(long), 4, 0)[1] == 4996


def test_fill_level_has_colours():
    assert [color_percent(percent) for percent in (0, 69, 70, 84, 85, 100)] == [
        "dim",
        "dim",
        "warning",
        "warning",
        "error",
        "error",
    ]
    assert (find_percent(0, 100), find_percent(50, 0), find_percent(50, 200)) == (None, None, 25)


def test_long_texts_fold():
    text = "\n".join(map(str, range(10)))
    assert fold_middle(text, 2, 1) == ("0\n1\n… 7 more lines …\n9", 7)
    assert fold_middle(text, 2, 0) == ("0\n1\n… 8 more lines …", 8)
    assert fold_middle(text, 5, 4) == (text, 0)


def test_hostile_lines_are_tamed():
    assert clean_line("a\x1b[31m\nb\u202e") == "a\\x1b[31m b\\u202e"
    assert clean_line("x" * 50, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('<skill name="haiku" location="/s">\nWrite it.\n</skill>\n\nthe sea', "/skill:haiku the sea"),
        ('<skill name="haiku" location="/s">\nWrite it.\n</skill>', "/skill:haiku"),
        ('<skill name="haiku" location="/s">\nWrite', "/skill:haiku …"),
        ("a <skill>", "a <skill>"),
    ],
)
def test_skills_are_shown_by_name(text, shown):
    assert fold_skill(text) == shown

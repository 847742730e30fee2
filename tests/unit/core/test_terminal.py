import pytest

from retinue.core.terminal import escape_line, escape_text


@pytest.mark.attack("H5", "H6")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x00\x9b", "a\\rb\\x00\\x9b"),
        ("\u202eevil", "\\u202eevil"),
        ("\udcff", "\\udcff"),
    ],
)
def test_unsafe_characters_are_shown(text, shown):
    assert escape_text(text) == shown


def test_line_is_bounded():
    assert escape_line("a\n" * 100, 10) == "a a a a a…"

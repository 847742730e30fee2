import pytest

from retinue.ui import driver
from retinue.ui.driver import BackgroundReported, TerminalParser, read_is_dark

WHITE = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\"


def parse(*pieces):
    """What the keys and answers are, as words."""
    parser = TerminalParser()
    found = [event for piece in pieces for event in [*parser.feed(piece), *parser.tick()]]
    return [f"dark={e.is_dark}" if isinstance(e, BackgroundReported) else e.key for e in found]


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        (["a" + WHITE + "b"], ["dark=False", "a", "b"]),
        (["a", WHITE[:1] + WHITE[1:4], WHITE[4:9], WHITE[9:], "b"], ["a", "dark=False", "b"]),
        (["\x1b]11;rgb:0000/0000/0000\x07x"], ["dark=True", "x"]),
        (["\x1b]11;rgb:00", "00/0000", "/0000\x1b", "\\x"], ["dark=True", "x"]),
        (["\x1b]11;rgb:12/", "hello"], ["h", "e", "l", "l", "o"]),
        (["\x1b]11;", "\x1b[A"], ["up"]),
        (["\x1b]11;#zz\x07x"], ["z", "z", "ctrl+g", "x"]),
    ],
)
def test_answers_are_never_typed(pieces, keys):
    assert parse(*pieces) == keys


def test_lost_end_holds_nothing_back(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(driver.time, "monotonic", lambda: now_s[0])
    parser = TerminalParser()
    assert [*parser.feed("\x1b]11;rgb:12")] == []
    now_s[0] = 3.0
    assert [*parser.tick()] == []
    assert [event.key for event in parser.feed("abc")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("answer", "is_dark"),
    [("rgb:16/16/1e", True), ("rgb:f/f/f", False), ("rgba:0000/0000/0000/ffff", None), ("", None), ("rgb:1/2", None)],
)
def test_colours_are_dark_or_light(answer, is_dark):
    assert read_is_dark(answer) is is_dark

import pytest

from retinue.ui.alerts import render_alert

OSC_9, OSC_777 = "\x1b]9;retinue: done\a", "\x1b]777;notify;retinue;done\a"


@pytest.mark.parametrize(
    ("wish", "environment", "sent"),
    [
        ("auto", {"TERM": "xterm-256color"}, "\a"),
        ("auto", {"TERM": "xterm-kitty"}, OSC_9),
        ("auto", {"TERM_PROGRAM": "iTerm.app"}, OSC_9),
        ("auto", {"VTE_VERSION": "7600"}, OSC_777),
        ("auto", {"TERM": "tmux-256color", "TMUX": "x", "VTE_VERSION": "7600"}, "\a"),
        ("bell", {"TERM": "xterm-kitty"}, "\a"),
        ("desktop", {"TERM": "xterm"}, OSC_9),
        ("desktop", {"TMUX": "x"}, f"\x1bPtmux;\x1b{OSC_9}\x1b\\"),
    ],
)
def test_terminal_decides_the_form(wish, environment, sent):
    assert render_alert("done", wish, environment) == sent


def test_text_cannot_control_the_terminal():
    sent = render_alert("a\x1b]0;b\a\x9c\nc\u202e " + "word " * 100, "desktop", {})
    assert sent.startswith("\x1b]9;retinue: a") and len(sent) < 150
    assert sent[1:-1].isprintable()

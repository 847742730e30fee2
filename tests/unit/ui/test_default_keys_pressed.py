"""Every action that has a key is pressed in a story of tests/ui: in a file about what the action belongs to."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from retinue.ui.default_keys import DEFAULTS

UI = Path(__file__).parents[2] / "ui"
FILES = {
    "tui.input": ("writing_keys", "input", "input_keys", "real_terminal"),
    "tui.editor": ("writing_keys", "input", "input_keys", "first_hour_commands"),
    "tui.altScreen": ("reading_keys", "long_session"),
    "tui.select": ("menus", "questions_ui", "reading_keys", "session_keys"),
    "app.menu": ("menus",),
    "app.text": ("menus",),
    "app.fleet": ("stopping_keys", "real_terminal"),
    "app.question": ("questions_ui",),
    "app.trust": ("input_keys",),
    "app.approvals": ("approvals_terminal",),
    "app.view": ("stopping_keys", "reading_keys"),
    "app.activity": ("menus_toolkit",),
    "app.session": ("session_keys", "writing_keys"),
    "app.tree": ("session_keys",),
}
TALKING = ("input", "input_keys", "writing_keys", "reading_keys", "stopping_keys", "real_terminal", "screens")
FILES |= {"app.models": ("model_keys",), "app.thinking": (*TALKING, "model_keys")}
TMUX = {"C-": "ctrl+", "M-": "alt+", "S-": "shift+"}


def to_words(text):
    """The keys in a string of a test, spelled as textual does."""
    for word in (text, *text.split(), *text.split(",")):
        yield word
        if re.fullmatch(r"(?:[CMS]-)+\S+", word):
            for short, name in TMUX.items():
                word = word.replace(short, name)
            yield word.lower()


@cache
def find_pressed(name):
    """Every string of a file of stories."""
    tree = ast.parse((UI / f"test_{name}.py").read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = [node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg]
    return {word for text in texts for word in to_words(text)} | set(named)


@pytest.mark.parametrize("action", list(DEFAULTS))
def test_every_action_has_a_story(action):
    files = FILES.get(".".join(action.split(".")[:2]), TALKING)
    pressed = set().union(*(find_pressed(name) for name in files))
    keys = [key for key in DEFAULTS[action].split(",") if key]
    # What has no key by default is given one in its story, by its name.
    assert pressed & {*keys, action} if keys else {action, action.rpartition(".")[2]} & pressed

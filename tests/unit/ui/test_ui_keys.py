import re
from pathlib import Path

import pytest
from textual.binding import Binding

from retinue.settings.keybindings import ACTIONS
from retinue.ui.keys import DEFAULTS, NO_KEY, Hotkey, KeyTable, show_key, to_textual
from retinue.ui.screens.main import MainScreen
from retinue.ui.widgets.editor import Editor


@pytest.mark.parametrize(
    ("pi", "textual"),
    [
        ("ctrl+l", "ctrl+l"),
        ("shift+ctrl+p", "ctrl+shift+p"),
        ("esc", "escape"),
        ("return", "enter"),
        ("pageUp", "pageup"),
        ("ctrl+]", "ctrl+right_square_bracket"),
        ("ctrl+-", "ctrl+minus"),
        ("shift+l", "L"),
        ("ctrl++", "ctrl+plus"),
        ("super+alt+k", "alt+super+k"),
        ("?", "question_mark"),
    ],
)
def test_keys_are_spelled_anew(pi, textual):
    assert to_textual(pi) == textual


def test_wanted_keys_replace_defaults():
    table = KeyTable({"app.model.select": ("ctrl+n", "f2"), "app.exit": (), "app.tree.editLabel": ("x",)})
    assert table.keymap == {"app.model.select": "ctrl+n,f2", "app.exit": NO_KEY}
    assert (table.find("app.exit"), table.find("app.clear")) == ((), ("ctrl+c",))
    assert (table.means("f2", "app.model.select"), table.means("ctrl+l", "app.model.select")) == (True, False)
    assert (table.show("app.model.select"), table.show("app.exit")) == ("ctrl+n", "")


def test_list_shows_present_keys():
    listed = {hotkey.action: hotkey for hotkey in KeyTable({"app.resend": ("f8",)}).list()}
    assert listed["app.resend"] == Hotkey("Talking", "app.resend", ("f8",), "stop the agent and say at once what waits")
    assert set(listed) == set(DEFAULTS)


def test_every_listed_action_is_known():
    assert set(DEFAULTS) - ACTIONS == set()


def test_bindings_have_the_listed_keys():
    bound = {
        each.id: each.key for each in [*MainScreen.BINDINGS, *Editor.BINDINGS] if isinstance(each, Binding) and each.id
    }
    assert bound == {action: DEFAULTS[action] or NO_KEY for action in bound}
    elsewhere = {"tui.input.tab", *(action for action in DEFAULTS if action.startswith("tui.select."))}
    assert set(DEFAULTS) - set(bound) == elsewhere


def test_keys_read_like_people_write_them():
    assert [show_key(key) for key in ("escape", "ctrl+minus", "alt+up", "L")] == ["esc", "ctrl+-", "alt+up", "L"]


def test_documented_keys_are_the_real_ones():
    page = Path(__file__).parents[3] / "docs" / "reference" / "keys.md"
    rows = re.findall(r"^\| (`(?:app|tui)\..*?`) \| (.*?) \| (.*) \|$", page.read_text(), re.MULTILINE)
    real = [
        (f"`{hotkey.action}`", ", ".join(f"`{show_key(key)}`" for key in hotkey.keys) or "none", hotkey.help)
        for hotkey in KeyTable().list()
    ]
    assert rows == real

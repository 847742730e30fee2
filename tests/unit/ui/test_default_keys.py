import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from textual.binding import Binding

import retinue.ui
from retinue.ui.default_keys import DEFAULTS, NO_KEY, Hotkey, KeyTable, show_key, to_textual
from retinue.ui.screens.tree_picker import FILTERS


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
    table = KeyTable({"app.model.select": ("ctrl+n", "f2"), "app.exit": (), "app.nothing": ("x",)})
    assert table.keymap == {"app.model.select": "ctrl+n,f2", "app.exit": NO_KEY}
    assert (table.find("app.exit"), table.find("app.clear")) == ((), ("ctrl+c",))
    assert (table.means("f2", "app.model.select"), table.means("ctrl+l", "app.model.select")) == (True, False)
    assert (table.show("app.model.select"), table.show("app.exit")) == ("ctrl+n", "")


def test_list_shows_present_keys():
    listed = {hotkey.action: hotkey for hotkey in KeyTable({"app.resend": ("f8",)}).list()}
    text = "stop the agent and send queued messages now"
    assert listed["app.resend"] == Hotkey("Conversation", "app.resend", ("f8",), text)
    assert set(listed) == set(DEFAULTS)


def list_bound():
    """Every class of ours with keys, from all modules of the screen."""
    for info in walk_packages(retinue.ui.__path__, "retinue.ui."):
        module = import_module(info.name)
        for owner in vars(module).values():
            if isinstance(owner, type) and owner.__module__ == info.name:
                yield from ((owner.__name__, each) for each in vars(owner).get("BINDINGS", ()))


def test_every_binding_can_be_changed():
    bound = list(list_bound())
    assert [(name, each) for name, each in bound if not (isinstance(each, Binding) and each.id)] == []
    assert {(each.id, each.key) for _, each in bound} == {(each.id, DEFAULTS[each.id] or NO_KEY) for _, each in bound}


def test_every_listed_action_does_something():
    package = Path(retinue.ui.__path__[0])
    source = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "default_keys.py")
    named = set(DEFAULTS).intersection(re.findall(r"(?:app|tui)\.[\w.]+", source))
    made = {f"app.trust.{name}" for name in ("yes", "always", "no", "never")}
    assert set(DEFAULTS) - named == made | {f"app.tree.filter.{name}" for name in FILTERS}


def test_leaving_always_has_a_key():
    table = KeyTable({"tui.select.cancel": (), "app.exit": ()})
    assert (table.find("tui.select.cancel"), table.keymap) == (("escape", "ctrl+c"), {"app.exit": NO_KEY})


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

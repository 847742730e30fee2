import json

import pytest

from retinue.settings.paths import find_paths
from retinue.settings.user_state import UserState
from retinue.ui.default_keys import DEFAULTS


@pytest.fixture
def load(agent_dir, tmp_path):
    def load(content):
        path = agent_dir / "keybindings.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        keys, problems = UserState(find_paths(tmp_path, {"HOME": str(agent_dir.parents[1])})).load_keys(DEFAULTS)
        return keys, [problem.removeprefix(str(path)) for problem in problems]

    return load


def test_keys_are_read_as_pi_writes_them(load):
    content = {
        "$schema": "https://example.org/x.json",
        "app.session.new": "ctrl+shift+n",
        "app.session.tree": ["ctrl+shift+T", "alt+shift+t"],
        "tui.altScreen.pageUp": [],
    }
    assert load(content) == (
        {
            "app.session.new": ("ctrl+shift+n",),
            "app.session.tree": ("ctrl+shift+t", "alt+shift+t"),
            "tui.altScreen.pageUp": (),
        },
        [],
    )


@pytest.mark.parametrize("value", [5, {"a": 1}, [5], "", "ctrl+", "ctrl+nope", "hyper+x", ["ctrl+l", "bad key"]])
def test_bad_keys_are_dropped(load, value):
    keys, problems = load({"app.clear": value, "app.exit": "ctrl+q"})
    assert keys == {"app.exit": ("ctrl+q",)}
    assert len(problems) == 1
    assert "app.clear" in problems[0]
    assert "expected a key such as ctrl+l" in problems[0]


def test_unknown_actions_are_told(load):
    message = ": unknown action 'app.cleer' (did you mean 'app.clear'?); skipped; /hotkeys lists the names"
    assert load({"app.cleer": "ctrl+x"}) == ({}, [message])


@pytest.mark.parametrize("content", ["{", "[]", "\x00", "null"])
def test_broken_files_change_nothing(load, content):
    keys, problems = load(content)
    assert keys == {}
    assert len(problems) >= 1


def test_absent_file_is_silent(agent_dir, tmp_path):
    assert UserState(find_paths(tmp_path, {"HOME": str(agent_dir.parents[1])})).load_keys(DEFAULTS) == ({}, [])

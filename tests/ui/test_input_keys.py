import json

import pytest

from retinue.app import Request
from retinue.cli.options import parse_arguments
from retinue.cli.prompts import collect_prompts
from retinue.ui.app import RetinueApp
from retinue.ui.screens.picker import Picker
from retinue.ui.screens.trust import TrustScreen
from tests.ui.pilot_world import Stage, open_stage


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def bind(agent_dir, **keys):
    (agent_dir / "keybindings.json").write_text(json.dumps(keys))


async def test_chosen_keys_replace_defaults(tmp_path, work, agent_dir):
    bind(agent_dir, **{"tui.input.submit": "ctrl+s", "tui.input.newLine": "enter", "app.model.select": []})
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        await stage.press("a", "enter", "b", "ctrl+l")
        assert (stage.editor.text, len(stage.app.screen_stack)) == ("a\nb", 1)
        await stage.press("ctrl+s")
        await stage.wait(lambda: stage.prompts == ["a\nb"])
        await stage.rest()


async def test_chosen_keys_move_in_lists(tmp_path, work, agent_dir):
    bind(agent_dir, **{"tui.select.down": ["ctrl+n"], "app.model.select": "f2"})
    async with open_stage(tmp_path) as stage:
        await stage.write("/")
        await stage.press("ctrl+n", "tab")
        assert stage.editor.text == "/hotkeys"
        await stage.press("ctrl+c", "f2")
        await stage.wait(lambda: isinstance(stage.app.screen, Picker))


async def test_bad_key_files_are_told(tmp_path, work, agent_dir):
    (agent_dir / "keybindings.json").write_text("{")
    async with open_stage(tmp_path) as stage:
        assert [note for note in stage.notes if "keybindings.json" in note]


async def test_thinking_level_is_turned(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        before = stage.app.link.crew.selection.thinking
        await stage.press("shift+tab")
        after = stage.app.link.crew.selection.thinking
        assert stage.notes[-1] == (f"thinking: {after}" if after != before else "this model has no thinking levels")


async def test_control_d_deletes_then_leaves(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("ab")
        await stage.press("home", "ctrl+d", "ctrl+d")
        assert (stage.editor.text, stage.app.return_value) == ("", None)
        await stage.press("ctrl+d")
        assert stage.app.return_value == 0


async def test_control_c_empties_then_leaves(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("words")
        await stage.press("ctrl+c")
        assert (stage.editor.text, stage.app.is_running) == ("", True)
        await stage.press("ctrl+c")
        assert stage.app.return_value is None
        await stage.press("ctrl+c")
        assert stage.app.return_value == 0


async def test_escape_says_what_it_stops(tmp_path, work):
    async with open_stage(tmp_path, {"text": "never", "delay_ms": 30_000}) as stage:
        await stage.write("go")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.state.is_busy)
        await stage.pilot.pause(0.2)
        assert "esc: stop the agent" in str(stage.app.screen.query_one("#working").content)
        await stage.press("escape")
        await stage.rest()


async def test_escape_twice_opens_the_tree(tmp_path, work):
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        await stage.write("hello")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        await stage.press("escape", "escape")
        await stage.wait(lambda: isinstance(stage.app.screen, Picker))


async def test_queued_words_come_back(tmp_path, work):
    async with open_stage(tmp_path, {"text": "never", "delay_ms": 30_000}) as stage:
        await stage.write("go")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.state.is_busy)
        for words in ("left", "right"):
            await stage.write(words)
            await stage.press("enter")
        await stage.wait(lambda: stage.app.link.state.steering == ["left", "right"])
        await stage.press("alt+up")
        assert stage.editor.text == "left\n\nright"
        await stage.press("ctrl+c", "ctrl+c")
        await stage.rest()


async def test_outside_editor_needs_a_terminal(tmp_path, work, monkeypatch):
    monkeypatch.setenv("VISUAL", "true")
    async with open_stage(tmp_path) as stage:
        await stage.write("draft")
        await stage.press("ctrl+g")
        await stage.wait(lambda: stage.notes)
        assert (stage.notes, stage.editor.text) == (["an external editor cannot run in this terminal"], "draft")


async def test_outside_editor_must_be_known(tmp_path, work, monkeypatch):
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    async with open_stage(tmp_path) as stage:
        await stage.press("ctrl+g")
        await stage.wait(lambda: stage.notes)
        assert stage.notes == ["no editor is configured; set VISUAL or EDITOR"]


async def test_theme_is_kept(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("/theme retinue-light")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.user_state.theme == "light")
    async with open_stage(tmp_path) as stage:
        assert stage.app.theme == "retinue-light"


async def test_no_color_is_honoured(tmp_path, work, monkeypatch):
    import os

    monkeypatch.setenv("NO_COLOR", "1")
    async with open_stage(tmp_path) as stage:
        assert (stage.app.no_color, os.environ["NO_COLOR"]) == (True, "1")


async def test_files_go_with_the_first_words(tmp_path, work):
    (work / "a.txt").write_text("inside")
    options = parse_arguments(["@a.txt", "what is it?"])
    app = RetinueApp(Request(offline=True), first_words=collect_prompts(options))
    async with app.run_test() as pilot:
        stage = Stage(app, pilot)
        await stage.wait(lambda: app.link.is_open and stage.prompts)
        assert stage.prompts == [f'<file name="{work}/a.txt">\ninside\n</file>\nwhat is it?']
        await stage.rest()


@pytest.fixture
def foreign(work):
    (work / ".pi" / "agents").mkdir(parents=True)
    (work / ".pi" / "agents" / "spy.md").write_text("---\ndescription: looks\n---\nLook.")
    return work


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("key", "is_used", "is_asked_again"),
    [
        ("y", True, True),
        ("a", True, False),
        ("n", False, True),
        ("v", False, False),
        ("escape", False, True),
        ("enter", False, True),
    ],
)
async def test_trust_is_asked_first(tmp_path, foreign, key, is_used, is_asked_again):
    async with open_stage(tmp_path, is_opened=False) as stage:
        await stage.wait(lambda: isinstance(stage.app.screen, TrustScreen))
        assert not stage.app.link.is_open
        await stage.press(key)
        await stage.wait(lambda: stage.app.link.is_open)
        names = [name for name, _ in stage.app.link.crew.catalogue.list_agents()]
        assert (stage.app.request.approve, "spy" in names) == (is_used, is_used)
    async with open_stage(tmp_path, is_opened=False) as stage:
        await stage.wait(lambda: stage.app.link.is_open or isinstance(stage.app.screen, TrustScreen))
        assert isinstance(stage.app.screen, TrustScreen) == is_asked_again


async def test_flags_decide_without_asking(tmp_path, foreign):
    async with open_stage(tmp_path, approve=False) as stage:
        assert len(stage.app.screen_stack) == 1

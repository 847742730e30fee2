import json
import os
import stat

import pytest
from textual.events import Key, Paste

from retinue.ui.screens.picker import Picker
from retinue.ui.screens.prompt import TextPrompt
from tests.ui.pilot_world import open_stage

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def clipboard(tmp_path, monkeypatch):
    """A desktop whose clipboard holds what the test puts into a folder, by kind."""
    held = tmp_path / "held"
    held.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    script = (
        f'#!/bin/sh\ncd "{held}" || exit 1\n'
        'if [ "$1" = --list-types ]; then for each in *; do echo "$each" | tr _ /; done; exit; fi\n'
        'cat "$(echo "$3" | tr / _)"\n'
    )
    (programs / "wl-paste").write_text(script)
    (programs / "wl-paste").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-9")
    return held


def bind(agent_dir, **keys):
    (agent_dir / "keybindings.json").write_text(json.dumps(keys))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("key", "sign", "place"),
    [
        ("ctrl+right_square_bracket", "o", (0, 5)),
        ("ctrl+right_square_bracket", "y", (1, 2)),
        ("ctrl+right_square_bracket", "q", (0, 4)),
        ("ctrl+right_square_bracket", "left", (0, 3)),
        ("alt+ctrl+right_square_bracket", "o", (0, 1)),
        ("alt+ctrl+right_square_bracket", "t", (0, 0)),
    ],
)
async def test_cursor_jumps_to_a_character(tmp_path, work, key, sign, place):
    async with open_stage(tmp_path) as stage:
        stage.editor.put("to whom\nxxyit may concern")
        stage.editor.move_cursor((0, 4))
        text = stage.editor.text
        await stage.press(key)
        assert stage.editor.border_subtitle == "jump to which character?"
        await stage.press(sign)
        assert (stage.editor.cursor_location, stage.editor.text, stage.editor.border_subtitle) == (place, text, "")


async def test_selected_words_are_copied(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("one two")
        await stage.press("ctrl+shift+left", "ctrl+c")
        assert (stage.editor.text, stage.app.clipboard) == ("one two", "two")
        await stage.press("ctrl+c")
        assert stage.editor.text == ""


async def test_keys_select(tmp_path, work):
    rows = [("shift+left", "d"), ("ctrl+shift+left", "third"), ("shift+home", "third"), ("shift+up", "ond\nthird")]
    async with open_stage(tmp_path) as stage:
        for key, selected in rows:
            stage.editor.put("a second\nthird")
            await stage.press(key)
            assert (key, stage.editor.selected_text) == (key, selected)


async def test_image_of_the_clipboard_goes_along(tmp_path, work, clipboard):
    (clipboard / "text_plain").write_text("words")
    (clipboard / "image_png").write_bytes(PNG)
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        await stage.write("see ")
        await stage.press("ctrl+v")
        await stage.wait(lambda: "clipboard-1.png" in stage.editor.text)
        path = stage.editor.text.partition("@")[2].strip()
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        assert [type(part).__name__ for part in stage.prompts[0]] == ["TextContent", "ImageContent"]
    assert not os.path.exists(path)


async def test_text_of_the_clipboard_is_pasted(tmp_path, work, clipboard):
    (clipboard / "text_plain").write_text("copied elsewhere")
    async with open_stage(tmp_path) as stage:
        await stage.press("ctrl+v")
        await stage.wait(lambda: stage.editor.text == "copied elsewhere")


async def test_empty_clipboard_is_told(tmp_path, work, clipboard):
    (clipboard / "image_png").write_text("no image at all")
    async with open_stage(tmp_path) as stage:
        await stage.press("ctrl+v")
        await stage.wait(lambda: stage.notes)
        assert stage.notes == ["the clipboard has no image or text"]


async def test_missing_clipboard_is_told(tmp_path, work, monkeypatch):
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    async with open_stage(tmp_path) as stage:
        await stage.press("ctrl+v")
        await stage.wait(lambda: stage.notes)
        assert "mention it with @" in stage.notes[0]


async def test_several_dropped_images_go_along(tmp_path, work):
    for name in ("a b.png", "c.png"):
        (tmp_path / name).write_bytes(PNG)
    async with open_stage(tmp_path) as stage:
        stage.editor.post_message(Paste(f"'{tmp_path}/a b.png' {tmp_path}/c.png"))
        await stage.wait(lambda: stage.editor.text)
        assert stage.editor.text == f'@"{tmp_path}/a b.png" @{tmp_path}/c.png '


@pytest.mark.parametrize(("action", "is_opened"), [("tree", True), ("fork", True), ("none", False), ("bad", True)])
async def test_double_escape_is_chosen(tmp_path, work, agent_dir, action, is_opened):
    (agent_dir / "settings.json").write_text(json.dumps({"doubleEscapeAction": action}))
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        assert bool([note for note in stage.notes if "doubleEscapeAction" in note]) == (action == "bad")
        await stage.write("hello")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        await stage.press("escape", "escape")
        await stage.pilot.pause(0.2)
        assert isinstance(stage.app.screen, Picker) == is_opened


async def test_project_names_no_editor(tmp_path, work, monkeypatch):
    (work / ".pi").mkdir()
    (work / ".pi" / "settings.json").write_text('{"externalEditor": "evil"}')
    async with open_stage(tmp_path, approve=True) as stage:
        assert stage.app.kept.external_editor == ""


@pytest.mark.parametrize(("value", "key"), [("f8", "f8"), ("no key", "f9"), ("", "f9")])
async def test_resend_key_is_a_setting(tmp_path, work, agent_dir, value, key):
    (agent_dir / "subagents.json").write_text(json.dumps({"abortResendKey": value}))
    async with open_stage(tmp_path) as stage:
        assert stage.app.keys.find("app.resend") == (key,)
        assert bool([note for note in stage.notes if "expected a key" in note]) == (value == "no key")


async def test_sessions_are_completed_and_resumed(tmp_path, work):
    async with open_stage(tmp_path, {"text": "fine"}) as stage:
        await stage.write("paint the shed")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        first = stage.app.link.crew.history.file
        await stage.write("/new")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.crew.history.file != first)
        popup = stage.app.screen.query_one("CompletionPopup")
        await stage.write("/resume shed")
        await stage.wait(lambda: [row.note for row in popup.rows if row.note.startswith("paint the shed")])
        await stage.press("tab", "enter")
        await stage.wait(lambda: stage.app.link.crew.history.file == first)
        assert stage.prompts == ["paint the shed"]


async def test_unknown_session_is_told(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        stage.app.speech.take("/resume nothing-like-it")
        await stage.wait(lambda: stage.notes)
        assert "'nothing-like-it'" in stage.notes[-1] and "/resume lists them" in stage.notes[-1]


async def test_asked_lines_have_keys(tmp_path, work, agent_dir):
    bind(agent_dir, **{"app.text.done": "f2", "tui.select.cancel": "f4"})
    async with open_stage(tmp_path) as stage:
        answers = []
        for key in ("f2", "f4"):
            stage.app.push_screen(TextPrompt("which?", value="this"), answers.append)
            await stage.press("escape", key)
        assert (answers, len(stage.app.screen_stack)) == (["this", None], 1)


async def test_no_hidden_key_leaves(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.press("ctrl+q")
        assert stage.app.return_value is None and stage.app.is_running


async def test_keys_count_in_their_order(tmp_path, work):
    async with open_stage(tmp_path, {"text": "one"}, {"text": "two"}) as stage:
        for key in ("a", "b", "home", "c", "enter", "d", "left", "e"):
            stage.app.post_message(Key(key, key if len(key) == 1 else None))
        await stage.wait(lambda: stage.prompts == ["cab"] and stage.editor.text == "ed")
        await stage.rest()


@pytest.mark.parametrize(("slow", "quick", "left"), [("", "/them", "/theme "), ("/", "theme retinue-light", "")])
async def test_enter_is_for_what_is_written(tmp_path, work, slow, quick, left):
    async with open_stage(tmp_path) as stage:
        await stage.write(slow)
        for sign in quick:  # before the list can follow
            stage.app.post_message(Key("space" if sign == " " else sign, sign))
        stage.app.post_message(Key("enter", None))
        await stage.wait(lambda: stage.editor.text == left and ("light" in stage.app.theme) == ("light" in quick))


WRITTEN = "one two\nthree four"


# All on one screen: a program of its own for each key would be a minute of everybody's life.
EDITED = [
    ("alt+right", WRITTEN, (0, 7)),
    ("ctrl+right", WRITTEN, (0, 7)),
    ("alt+f", WRITTEN, (0, 7)),
    ("alt+left", WRITTEN, (0, 0)),
    ("alt+b", WRITTEN, (0, 0)),
    ("ctrl+b", WRITTEN, (0, 3)),
    ("ctrl+f", WRITTEN, (0, 5)),
    ("ctrl+a", WRITTEN, (0, 0)),
    ("ctrl+e", WRITTEN, (0, 7)),
    ("ctrl+pagedown", WRITTEN, (1, 4)),
    ("down ctrl+pageup", WRITTEN, (0, 4)),
    ("ctrl+left", WRITTEN, (0, 0)),
    ("ctrl+backspace", "two\nthree four", (0, 0)),
    ("delete", "one wo\nthree four", (0, 4)),
    ("backspace", "onetwo\nthree four", (0, 3)),
    ("alt+d", "one \nthree four", (0, 4)),
    ("alt+delete", "one \nthree four", (0, 4)),
    ("ctrl+w", "two\nthree four", (0, 0)),
    ("alt+backspace", "two\nthree four", (0, 0)),
    ("ctrl+k", "one \nthree four", (0, 4)),
    ("ctrl+u", "two\nthree four", (0, 0)),
    ("ctrl+k ctrl+y", WRITTEN, (0, 7)),
    ("ctrl+k ctrl+u ctrl+y alt+y", "two\nthree four", (0, 3)),
    ("ctrl+k ctrl+minus", WRITTEN, (0, 4)),
    ("ctrl+k ctrl+underscore ctrl+shift+z", "one \nthree four", (0, 4)),
    ("ctrl+j", "one \ntwo\nthree four", (1, 0)),
    ("shift+enter", "one \ntwo\nthree four", (1, 0)),
]


async def test_editor_keys(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        for keys, text, place in EDITED:
            stage.editor.clear_all()
            stage.editor.put(WRITTEN)
            stage.editor.move_cursor((0, 4))
            stage.editor.history.checkpoint()
            await stage.press(*keys.split())
            assert (keys, stage.editor.text, stage.editor.cursor_location) == (keys, text, place)


SELECTED = [
    ("shift+right", "t"),
    ("ctrl+shift+right", "two"),
    ("shift+end", "two"),
    ("shift+down", "two\nthre"),
]


async def test_keys_select_forward(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        for key, selected in SELECTED:
            stage.editor.put(WRITTEN)
            stage.editor.move_cursor((0, 4))
            await stage.press(key)
            assert (key, stage.editor.selected_text) == (key, selected)


async def test_unbound_actions_can_have_keys(tmp_path, work, agent_dir):
    names = {"new": "f5", "tree": "f6", "fork": "f7", "resume": "f8"}
    history = {"tui.editor.historyPrevious": "f10", "tui.editor.historyNext": "f11"}
    bind(agent_dir, **{f"app.session.{name}": key for name, key in names.items()}, **history)
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        await stage.write("hello")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        for key, title in (("f6", "Go back to"), ("f7", "Fork before"), ("f8", "Resume a session")):
            await stage.press(key)
            await stage.wait(lambda title=title: getattr(stage.app.screen, "title_text", "") == title)
            await stage.press("escape")
        await stage.write("ab")
        await stage.press("left", "f10")
        assert stage.editor.text == "hello"
        await stage.press("f11")
        assert stage.editor.text == "ab"
        before = stage.app.link.crew.history.file
        await stage.press("f5")
        await stage.wait(lambda: stage.app.link.crew.history.file != before)


async def test_models_are_turned_and_replies_copied(tmp_path, work):
    async with open_stage(tmp_path, {"thinking": "hm hm", "text": "the reply"}) as stage:
        await stage.write("hello")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        await stage.press("ctrl+x")
        await stage.wait(lambda: stage.app.clipboard == "the reply")
        view = next(
            each for each in stage.app.screen.query_one("#conversation").views if each.block.text == "the reply"
        )
        await stage.press("ctrl+t")
        assert view.is_open
        await stage.press("ctrl+t")
        assert not view.is_open
        for key in ("ctrl+p", "ctrl+shift+p"):
            count = len(stage.notes)
            await stage.press(key)
            assert stage.notes[count:] and stage.notes[-1].startswith(("model: ", "there is only one model"))

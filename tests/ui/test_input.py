import base64

import pytest
from textual.events import Paste

from retinue.core.messages import ImageContent, TextContent
from retinue.ui.widgets.completion import CompletionPopup
from tests.ui.pilot_world import open_stage

LONG = "\n".join(f"line {number}" for number in range(20))
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("x")
    (folder / "two words.txt").write_text("x")
    monkeypatch.chdir(folder)
    return folder


def popup(stage):
    return stage.app.screen.query_one(CompletionPopup)


async def paste(stage, text):
    stage.editor.post_message(Paste(text))
    await stage.pilot.pause()


async def test_partial_commands_are_completed(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("/mod")
        await stage.press("enter")
        assert stage.editor.text == "/model "
        await stage.press("ctrl+c")
        await stage.write("/hotk")
        await stage.press("tab")
        assert stage.editor.text == "/hotkeys"


async def test_complete_commands_run_at_once(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("/hotkeys")
        assert popup(stage).is_open
        await stage.press("enter")
        await stage.wait(lambda: len(stage.app.screen_stack) == 2)
        assert stage.editor.text == ""


async def test_completions_can_be_clicked(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("/")
        await stage.pilot.click("#completion", offset=(5, 1))
        await stage.pilot.pause()
        assert stage.editor.text == "/hotkeys"


async def test_escape_closes_completions_first(tmp_path, work):
    async with open_stage(tmp_path, {"text": "never", "delay_ms": 30_000}) as stage:
        await stage.write("go")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.state.is_busy)
        await stage.write("/mo")
        await stage.press("escape")
        assert (popup(stage).is_open, stage.editor.text, stage.app.link.crew.is_busy) == (False, "/mo", True)
        await stage.press("escape")
        await stage.rest()


async def test_files_are_completed_and_quoted(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("see @two")
        await stage.wait(lambda: popup(stage).is_open)
        await stage.press("enter")
        await stage.write("and @main")
        await stage.wait(lambda: popup(stage).is_open)
        await stage.press("tab")
        assert stage.editor.text == 'see @"two words.txt" and @src/main.py '


async def test_folders_can_be_entered(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("@sr")
        await stage.wait(lambda: popup(stage).is_open)
        await stage.press("tab")
        assert [row.label for row in popup(stage).rows] == ["@src/", "@src/main.py"]


async def test_emptied_editor_has_no_completions(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("@")
        await stage.wait(lambda: popup(stage).is_open)
        await stage.press("ctrl+c")
        assert not popup(stage).is_open


async def test_agents_are_asked_for(tmp_path, work):
    async with open_stage(tmp_path, {"text": "yes"}) as stage:
        await stage.write("@agent-Exp")
        await stage.press("tab")
        await stage.write("look")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        words = '@agent-Explore look\n\n(The user asks for the agent "Explore": delegate to it.)'
        assert stage.prompts == [words]


async def test_dropped_images_go_along(tmp_path, work):
    (work / "my shot.png").write_bytes(PNG)
    async with open_stage(tmp_path, {"text": "nice"}) as stage:
        await paste(stage, f"{work}/my\\ shot.png\n")
        assert stage.editor.text == f'@"{work}/my shot.png" '
        await stage.write("what is it?")
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        words = TextContent(f'@"{work}/my shot.png" what is it?')
        assert stage.prompts == [[words, ImageContent(base64.b64encode(PNG).decode(), "image/png")]]


async def test_long_pastes_are_sent_whole(tmp_path, work):
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        await stage.write("a ")
        await paste(stage, LONG)
        await stage.write(" b ")
        await paste(stage, "z" * 1500)
        assert stage.editor.text == "a [paste #1 +20 lines] b [paste #2 1500 chars]"
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts)
        await stage.rest()
        assert stage.prompts == [f"a {LONG} b {'z' * 1500}"]


async def test_marks_are_deleted_whole_and_undone(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await paste(stage, LONG)
        await stage.press("backspace")
        assert stage.editor.text == ""
        await stage.press("ctrl+underscore")
        assert (stage.editor.text, stage.editor.words) == ("[paste #1 +20 lines]", LONG)


async def test_pasted_controls_are_shown_as_text(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await paste(stage, "a\x1b[31mb\rc\u202e")
        assert stage.editor.text == "a\\x1b[31mb\nc\\u202e"


async def test_deleted_words_are_put_back(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("one two")
        await stage.press("ctrl+w", "ctrl+u", "ctrl+y")
        assert stage.editor.text == "one "
        await stage.press("alt+y")
        assert stage.editor.text == "two"


async def test_history_survives_the_program(tmp_path, work):
    async with open_stage(tmp_path, {"text": "ok"}) as stage:
        await stage.write("first words")
        await stage.press("enter")
        await stage.rest()
        await stage.wait(lambda: stage.app.user_state.history.load() == ["first words"])
    async with open_stage(tmp_path) as stage:
        await stage.write("draft")
        await stage.press("up")
        assert stage.editor.text == "first words"
        await stage.press("down")
        assert stage.editor.text == "draft"


async def test_backslash_before_enter_breaks_the_line(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        await stage.write("one\\")
        await stage.press("enter")
        await stage.write("two")
        await stage.press("ctrl+j")
        await stage.write("three")
        assert stage.editor.text == "one\ntwo\nthree"


async def test_early_words_wait_for_the_agent(tmp_path, work):
    async with open_stage(tmp_path, {"text": "ok"}, is_opened=False) as stage:
        await stage.write("hello")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.is_open and stage.prompts == ["hello"])
        await stage.rest()


@pytest.mark.parametrize("size", [(20, 5), (20, 24), (300, 80)])
async def test_completions_fit_any_screen(tmp_path, work, size):
    async with open_stage(tmp_path, size=size) as stage:
        await stage.write("/")
        assert popup(stage).is_open
        await stage.press("down", "down", "enter")
        assert stage.editor.text.startswith("/")
        assert stage.editor.region.height > 0

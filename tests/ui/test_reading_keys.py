import json

import pytest
from textual.events import Key

from retinue.ui.screens.panel import Panel
from retinue.ui.widgets.conversation import Conversation
from retinue.ui.widgets.search import SearchInput, SearchLine
from tests.ui.pilot_world import open_stage

LONG = "\n\n".join(f"paragraph {number} about {'apples' if number == 25 else 'pears'}" for number in range(40))


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def bind(agent_dir, **keys):
    (agent_dir / "keybindings.json").write_text(json.dumps(keys))


def find_conversation(stage):
    return stage.app.screen_stack[0].query_one("#conversation", Conversation)


def read_found(stage):
    return str(stage.app.screen.query_one("#search-found").content)


def read_top(stage):
    """The block at the top of the screen."""
    conversation = find_conversation(stage)
    top = conversation.scroll_offset.y
    views = [view for view in conversation.views if view.virtual_region.bottom > top]
    return views[0].block.text[:12]


async def talk(stage, *prompts):
    for number, words in enumerate(prompts, 1):
        await stage.write(words)
        await stage.press("enter")
        await stage.wait(lambda number=number: len(stage.prompts) == number)
        await stage.rest()
    await stage.pilot.pause(0.15)


async def test_prompts_are_gone_through(tmp_path, work):
    async with open_stage(tmp_path, *({"text": LONG} for _ in range(3))) as stage:
        await talk(stage, "first", "second", "third")
        tops = []
        for key in ("ctrl+up", "ctrl+up", "ctrl+shift+up", "ctrl+down", "ctrl+shift+down"):
            await stage.press(key)
            tops.append(read_top(stage))
        assert tops == ["third", "second", "first", "second", "third"]
        await stage.press("ctrl+down")
        assert find_conversation(stage).is_vertical_scroll_end


async def test_pages_lines_and_edges(tmp_path, work, agent_dir):
    names = ("halfPageUp", "halfPageDown", "lineUp", "lineDown")
    bind(agent_dir, **{f"tui.altScreen.{name}": f"f{at}" for at, name in enumerate(names, 5)})
    async with open_stage(tmp_path, {"text": LONG}) as stage:
        await talk(stage, "go")
        conversation, places = find_conversation(stage), []
        height, most = conversation.size.height, conversation.max_scroll_y
        for key in ("pageup", "f5", "f6", "f7", "f8", "pagedown", "ctrl+home", "ctrl+end"):
            await stage.press(key)
            places.append(most - conversation.scroll_offset.y)
        half = height // 2
        assert places == [height, height + half, height, height + 1, height, 0, most, 0]


async def test_words_are_searched(tmp_path, work):
    async with open_stage(tmp_path, {"text": LONG}, {"text": "two apples"}, {"text": "only pears"}) as stage:
        await talk(stage, "go", "more", "again")
        await stage.write("draft")
        await stage.press("f3")
        await stage.write("APPLES")
        await stage.wait(lambda: read_found(stage) == "2 of 2")
        await stage.press("enter")
        assert read_found(stage) == "1 of 2"
        await stage.pilot.pause(0.1)
        view = next(view for view in find_conversation(stage).views if view.has_class("-found"))
        row = find_conversation(stage).scroll_offset.y - view.virtual_region.y
        assert 25 < row < 60  # the words are in the middle of a long reply
        await stage.press("shift+enter", "ctrl+shift+g", "ctrl+g")
        assert read_found(stage) == "2 of 2"
        await stage.press("escape")
        assert not stage.app.screen.query_one(SearchLine).is_open
        assert (stage.editor.has_focus, stage.editor.text, len(stage.app.screen.query(".-found"))) == (True, "draft", 0)


async def test_what_is_not_there_is_told(tmp_path, work):
    async with open_stage(tmp_path, {"text": "some words"}) as stage:
        await talk(stage, "go")
        await stage.press("ctrl+shift+f")
        await stage.write("plums")
        await stage.press("enter")
        await stage.wait(lambda: read_found(stage) == "not found: plums")
        await stage.press("ctrl+c")
        assert (stage.editor.has_focus, stage.app.is_running) == (True, True)


async def test_folded_output_opens_when_found(tmp_path, work):
    calls = [{"name": "bash", "arguments": {"command": "seq 1000 1200"}}]
    async with open_stage(tmp_path, {"calls": calls}, {"text": "done"}) as stage:
        await talk(stage, "go")
        await stage.press("f3")
        await stage.write("1100")
        await stage.wait(lambda: read_found(stage) == "1 of 1")
        await stage.pilot.pause(0.1)
        view = next(view for view in find_conversation(stage).views if view.has_class("-found"))
        assert view.is_open


async def test_question_ends_a_search(tmp_path, work, agent_dir):
    (agent_dir / "subagents.json").write_text('{"approvals": "ask"}')
    call = {"calls": [{"name": "bash", "arguments": {"command": "true"}}], "delay_ms": 1200}
    async with open_stage(tmp_path, call, {"text": "done"}) as stage:
        await stage.write("go")
        await stage.press("enter", "f3")
        await stage.wait(lambda: isinstance(stage.app.focused, SearchInput))
        await stage.wait(lambda: stage.app.link.state.questions)
        await stage.wait(lambda: stage.editor.has_focus)
        await stage.press("escape")
        await stage.rest()


async def test_panels_have_keys(tmp_path, work, agent_dir):
    bind(agent_dir, **{"app.view.close": "z", "app.view.pageDown": "f", "tui.select.cancel": "f4"})
    async with open_stage(tmp_path, size=(100, 20)) as stage:
        for close in ("z", "f4", "enter"):
            stage.app.speech.take("/hotkeys")
            await stage.wait(lambda: isinstance(stage.app.screen, Panel))
            await stage.pilot.pause(0.1)
            if close == "z":
                await check_scrolling(stage, stage.app.screen.query_one("#scroll"))
            await stage.press(close)
            assert len(stage.app.screen_stack) == 1


async def check_scrolling(stage, scroll):
    places = []
    for key in ("j", "down", "k", "up", "f", "shift+up", "pagedown", "pageup", "end", "home", "escape", "q"):
        await stage.press(key)
        places.append(scroll.scroll_offset.y)
    page, most = scroll.size.height, scroll.max_scroll_y
    assert places == [1, 2, 1, 0, page, 0, page, 0, most, 0, 0, 0]


@pytest.mark.parametrize("key", ["escape", "q", "enter", "ctrl+c"])
async def test_panels_close(tmp_path, work, key):
    async with open_stage(tmp_path) as stage:
        stage.app.speech.take("/session")
        await stage.wait(lambda: isinstance(stage.app.screen, Panel))
        await stage.press(key)
        assert (len(stage.app.screen_stack), stage.app.is_running) == (1, True)


async def test_keys_faster_than_a_panel_are_harmless(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        for key in ("down", "end", "pagedown", "escape"):
            panel = Panel("Report", "words")
            stage.app.push_screen(panel)
            stage.app.post_message(Key(key, None))
            await stage.wait(lambda panel=panel: panel.is_mounted)
            await stage.press("escape")
        assert (len(stage.app.screen_stack), stage.app.is_running) == (1, True)

import json

import pytest

from retinue.app import Request, list_sessions
from retinue.ui.screens.panel import WaitScreen
from retinue.ui.screens.picker import Picker
from retinue.ui.screens.prompt import TextPrompt
from retinue.ui.screens.session_picker import SessionPicker
from retinue.ui.screens.tree_picker import TreePicker
from tests.ui.pilot_world import open_stage


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


REPLIES = [
    {"calls": [{"name": "bash", "arguments": {"command": "echo hi"}}]},
    *({"text": text} for text in ("first answer", "second answer", "third answer", "fourth answer")),
]


SLOW_NOTES = {"match": {"last_user": "a branch that the user has left"}, "text": "notes", "delay_ms": 30_000}


async def say(stage, *prompts):
    for text in prompts:
        count = len(stage.prompts)
        stage.editor.put(text)
        await stage.press("enter")
        await stage.wait(lambda count=count: len(stage.prompts) > count)
        await stage.rest()


async def call(stage, command, kind):
    stage.app.speech.take(command)
    await stage.wait(lambda: isinstance(stage.app.screen, kind) and stage.app.screen.shown)
    await stage.pilot.pause()


def rows(stage):
    return [choice.label for choice in stage.app.screen.shown]


def hint(stage):
    return str(stage.app.screen.query_one("#hint").content)


async def test_tree_is_filtered(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one", "two")
        await call(stage, "/tree", TreePicker)
        usual = ["one", "✓ bash: hi", "agent: first answer", "two", "agent: second answer"]
        quiet, mine = [usual[0], *usual[2:]], ["one", "two"]
        seen = [rows(stage)]
        for key in ("ctrl+t", "ctrl+u", "ctrl+u", "ctrl+o", "ctrl+shift+o", "ctrl+l", "ctrl+d"):
            await stage.press(key)
            seen.append(rows(stage))
        assert seen == [usual, quiet, mine, usual, quiet, usual, [], usual]
        await stage.press("ctrl+a")
        assert len(rows(stage)) > len(usual) and "filter (everything)" in hint(stage)
        await stage.press("escape")


async def answer(stage, *keys):
    """Answer the question about a summary."""
    await stage.wait(lambda: getattr(stage.app.screen, "title_text", "") == "Summarise the branch you leave?")
    await stage.wait(lambda: stage.app.screen.shown)
    await stage.press(*keys)


def read_kinds(stage):
    """Kinds and parents of the entries that say something, by what they say."""
    found = {}
    for entry in stage.app.link.crew.history.list_entries():
        content = entry.get("message", {}).get("content")
        said = content[0].get("text", "") if isinstance(content, list) and content else entry.get("summary", "")
        found[said] = (entry["id"], entry["parentId"])
    return found


async def test_tree_leads_to_any_entry(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one", "two")
        file = stage.app.link.crew.history.file
        await call(stage, "/tree", TreePicker)
        await stage.press("up", "up", "enter")
        await answer(stage, "enter")
        await stage.wait(lambda: stage.prompts == ["one"])
        assert (stage.editor.text, stage.app.link.crew.history.file) == ("", file)
        await say(stage, "other")
        said = read_kinds(stage)
        assert said["other"][1] == said["first answer"][0]
        await call(stage, "/tree", TreePicker)
        assert rows(stage)[-4:] == ["  ⑂ two", "  agent: second answer", "  ⑂ other", "  agent: second answer"]
        await stage.press("ctrl+u", "enter")
        await answer(stage, "enter")
        await stage.wait(lambda: stage.prompts == [] and stage.editor.text == "one")


async def test_left_branch_is_summed_up(tmp_path, work):
    replies = (*REPLIES[:3], {"match": {"last_user": "focus on: the tests"}, "text": "## Goal\nTwo."})
    async with open_stage(tmp_path, *replies) as stage:
        await say(stage, "one", "two")
        await call(stage, "/tree", TreePicker)
        await stage.press("up", "up", "enter")
        await answer(stage, "down", "down", "enter")
        await stage.wait(lambda: isinstance(stage.app.screen, TextPrompt))
        await stage.write("the tests")
        await stage.press("ctrl+s")
        await stage.wait(lambda: stage.prompts == ["one"] and stage.notes)
        entries = stage.app.link.crew.history.list_entries()
        assert (entries[-1]["type"], entries[-1]["parentId"]) == (
            "branch_summary",
            read_kinds(stage)["first answer"][0],
        )
        blocks = stage.app.link.state.talk.blocks
        assert any("## Goal" in getattr(block, "summary", "") for block in blocks)


async def test_question_leads_back_to_the_tree(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES[:3], SLOW_NOTES) as stage:
        await say(stage, "one", "two")
        leaf = stage.app.link.crew.history.leaf_id
        await call(stage, "/tree", TreePicker)
        await stage.press("up", "up", "enter")
        await answer(stage, "down", "down", "enter")
        await stage.wait(lambda: isinstance(stage.app.screen, TextPrompt))
        await stage.press("escape")
        await answer(stage, "escape")
        await stage.wait(lambda: isinstance(stage.app.screen, TreePicker) and stage.app.screen.lit)
        assert stage.app.screen.lit.label == "agent: first answer"
        await stage.press("enter")
        await answer(stage, "down", "enter")
        await stage.wait(lambda: isinstance(stage.app.screen, WaitScreen))
        await stage.press("escape")
        await stage.wait(lambda: isinstance(stage.app.screen, TreePicker))
        await stage.press("escape")
        await stage.wait(lambda: len(stage.app.screen_stack) == 1)
        assert (stage.app.link.crew.history.leaf_id, stage.prompts) == (leaf, ["one", "two"])


async def test_question_is_left_out_by_setting(tmp_path, work, agent_dir):
    settings = {"branchSummary": {"skipPrompt": True}, "treeFilterMode": "user-only"}
    (agent_dir / "settings.json").write_text(json.dumps(settings))
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one", "two")
        await call(stage, "/tree", TreePicker)
        assert rows(stage) == ["one", "two"]
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts == ["one"] and stage.editor.text == "two")


async def test_present_place_is_told(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one")
        await call(stage, "/tree", TreePicker)
        await stage.press("enter")
        await stage.wait(lambda: "you are already there" in stage.notes)


async def test_going_elsewhere_stops_the_agent(tmp_path, work):
    replies = ({"text": "first answer"}, {"text": "never", "delay_ms": 30_000})
    async with open_stage(tmp_path, *replies) as stage:
        await say(stage, "one")
        stage.app.speech.take("two")
        await stage.wait(lambda: stage.prompts == ["one", "two"])
        await call(stage, "/tree", TreePicker)
        await stage.press("up", "up", "enter") if rows(stage)[-1] != "two" else await stage.press("up", "enter")
        await answer(stage, "enter")
        await stage.wait(lambda: stage.prompts == ["one"])
        assert not stage.app.link.crew.is_busy


async def test_fork_and_clone_are_sessions(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one", "two")
        history = stage.app.link.crew.history
        await call(stage, "/fork", Picker)
        assert rows(stage) == ["one", "two"]
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts == ["one"] and stage.editor.text == "two")
        stage.editor.put("")
        forked = stage.app.link.crew.history.file
        stage.app.speech.take("/clone")
        await stage.wait(lambda: stage.app.link.crew.history.file != forked)
        assert stage.prompts == ["one"]
        files = {history.file, forked, stage.app.link.crew.history.file}
    assert len(files) == 3


async def test_tree_is_marked(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one", "two")
        await call(stage, "/tree", TreePicker)
        await stage.press("up", "L")
        await stage.wait(lambda: isinstance(stage.app.screen, TextPrompt))
        await stage.write("good")
        await stage.press("enter")
        await stage.wait(lambda: isinstance(stage.app.screen, TreePicker) and "[good] two" in rows(stage))
        await stage.press("ctrl+l")
        assert rows(stage) == ["[good] two"]
        await stage.press("T")
        assert rows(stage)[0].startswith("[good 20") and rows(stage)[0].endswith("] two")
        await stage.press("ctrl+x")
        assert stage.app.clipboard == "two"
        await stage.press("escape")


async def test_branches_are_folded(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one", "two")
        await call(stage, "/tree", TreePicker)
        await stage.press("alt+left")
        assert stage.app.screen.lit.label == "one"
        await stage.press("ctrl+left")
        assert [(choice.label, choice.note) for choice in stage.app.screen.shown] == [("one", "+4 folded")]
        await stage.press("ctrl+right")
        assert len(rows(stage)) == 5
        await stage.press("alt+right")
        assert stage.app.screen.lit.label == "agent: second answer"
        await stage.press("escape")


async def test_sessions_are_sorted_and_narrowed(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "zebra")
        stage.app.speech.take("/name zoo")
        stage.app.speech.take("/new")
        await stage.wait(lambda: not stage.prompts)
        await say(stage, "ant")
        await call(stage, "/resume", SessionPicker)
        assert rows(stage) == ["ant", "zoo"]
        await stage.press("ctrl+s", "ctrl+s")
        assert (rows(stage), "sort (by name)" in hint(stage)) == (["zoo", "ant"], True)
        await stage.press("ctrl+n")
        assert rows(stage) == ["zoo"]
        await stage.press("ctrl+p")
        assert ".jsonl" in stage.app.screen.shown[0].note
        await stage.press("ctrl+n", "escape")


async def test_session_is_renamed(tmp_path, work):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "zebra")
        stage.app.speech.take("/new")
        await stage.wait(lambda: not stage.prompts)
        await call(stage, "/resume", SessionPicker)
        await stage.press("ctrl+r")
        await stage.wait(lambda: isinstance(stage.app.screen, TextPrompt))
        await stage.write("zoo")
        await stage.press("enter")
        await stage.wait(lambda: isinstance(stage.app.screen, SessionPicker) and rows(stage) == ["zoo"])
        await stage.press("escape")
    assert [each["name"] for each in list_sessions(Request(), everything=False)] == ["zoo"]


@pytest.mark.parametrize("key", ["ctrl+d", "ctrl+backspace"])
async def test_session_is_deleted_by_two_presses(tmp_path, work, key):
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "zebra")
        stage.app.speech.take("/new")
        await stage.wait(lambda: not stage.prompts)
        await say(stage, "ant")
        await call(stage, "/resume", SessionPicker)
        await stage.press(key)
        assert "the open session cannot be deleted" in hint(stage)
        await stage.press("down", key)
        assert (rows(stage), "again: permanently delete “zebra”" in hint(stage)) == (["ant", "zebra"], True)
        await stage.press(key)
        await stage.wait(lambda: rows(stage) == ["ant"])
        await stage.press("escape")
    assert [each["firstMessage"] for each in list_sessions(Request(), everything=False)] == ["ant"]


async def test_keys_of_lists_can_be_changed(tmp_path, work, agent_dir):
    keys = {"app.tree.filter.userOnly": "f5", "app.tree.filter.all": [], "tui.select.cancel": "f6"}
    (agent_dir / "keybindings.json").write_text(json.dumps(keys))
    async with open_stage(tmp_path, *REPLIES) as stage:
        await say(stage, "one")
        await call(stage, "/tree", TreePicker)
        await stage.press("ctrl+a", "ctrl+u", "f5")
        assert rows(stage) == ["one"]
        await stage.press("escape")
        assert isinstance(stage.app.screen, Picker)
        await stage.press("f6")
        assert not isinstance(stage.app.screen, Picker)


async def test_rewind_brings_files_back(tmp_path, work):
    (work / "a.txt").write_text("one")
    write = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "two"}}]}
    async with open_stage(tmp_path, {"text": "Hello."}, write, {"text": "Done."}, tools=("write",)) as stage:
        await say(stage, "hello", "change it")
        assert (work / "a.txt").read_text() == "two"
        await call(stage, "/rewind", Picker)
        assert rows(stage) == ["hello", "change it"]
        await stage.press("enter")
        await stage.wait(lambda: rows(stage)[:1] == ["Files and conversation"])
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts == ["hello"])
        await stage.wait(lambda: "/rewind undo takes this back: 1 file restored" in stage.notes[-1])
        assert ((work / "a.txt").read_text(), stage.editor.text) == ("one", "change it")
        stage.app.speech.take("/rewind undo")
        await stage.wait(lambda: stage.prompts == ["hello", "change it"])
        assert (work / "a.txt").read_text() == "two"

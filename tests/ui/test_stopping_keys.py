import json

import pytest
from textual.events import Key

from retinue.core.run import Status
from retinue.ui.screens.viewer import RunViewer
from tests.ui.pilot_world import open_stage

SLOW = {"match": {"last_user": "look"}, "text": "I look around. " * 400, "chunk_ms": 50, "chunk_chars": 5}


def spawn(count):
    calls = [
        {"name": "Agent", "arguments": {"prompt": f"look {n}", "description": f"job {n}", "subagent_type": "Explore"}}
        for n in range(count)
    ]
    return {"match": {"last_user": "^begin$"}, "calls": calls}


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def read_footer(stage):
    return str(stage.app.screen_stack[0].query_one("#footer").content)


def count_working(stage):
    return sum(run.status is Status.RUNNING for run in stage.app.link.crew.session_runs.runs)


async def begin(stage, count, *, rests=True):
    await stage.write("begin")
    await stage.press("enter")
    await stage.wait(lambda: count_working(stage) == count)
    if rests:
        await stage.rest()


async def test_escape_at_rest_stops_runs_at_the_second_press(tmp_path, work):
    replies = (spawn(2), {"match": {"last_user": "^begin$"}, "text": "They are on it."}, SLOW)
    async with open_stage(tmp_path, *replies, tools=("read", "Agent")) as stage:
        await begin(stage, 2)
        await stage.wait(lambda: "2 runs · esc esc: stop them" in read_footer(stage))
        await stage.press("escape")
        assert ("esc again: stop 2 runs" in read_footer(stage), count_working(stage)) == (True, 2)
        await stage.press("escape")
        await stage.wait(lambda: {run.status for run in stage.app.link.crew.session_runs.runs} == {Status.STOPPED})
        await stage.wait(lambda: "esc esc" not in read_footer(stage))


async def test_escape_spares_runs_once(tmp_path, work):
    waits = {"match": {"last_user": "^begin$"}, "text": "never said", "delay_ms": 30_000}
    async with open_stage(tmp_path, spawn(1), waits, SLOW, tools=("read", "Agent")) as stage:
        await begin(stage, 1, rests=False)
        working = stage.app.screen.query_one("#working")
        await stage.wait(lambda: "esc: stop the agent · esc esc: also 1 run" in str(working.content))
        await stage.press("escape")
        await stage.rest()
        assert ("1 run continues; esc again: stop it" in read_footer(stage), count_working(stage)) == (True, 1)
        await stage.press("escape")
        await stage.wait(lambda: count_working(stage) == 0)


async def test_escape_stops_what_the_agent_waits_for(tmp_path, work, agent_dir):
    (agent_dir / "subagents.json").write_text(json.dumps({"surfaces": ["subagent"]}))
    calls = [{"name": "subagent", "arguments": {"agent": "Explore", "task": "look"}}]
    replies = ({"match": {"last_user": "^begin$"}, "calls": calls}, SLOW)
    async with open_stage(tmp_path, *replies, tools=("read", "subagent")) as stage:
        await begin(stage, 1, rests=False)
        await stage.press("escape")
        await stage.rest()
        await stage.wait(lambda: count_working(stage) == 0)


async def test_control_c_asks_about_agents(tmp_path, work):
    replies = (spawn(1), {"match": {"last_user": "^begin$"}, "text": "On it."}, SLOW)
    async with open_stage(tmp_path, *replies, tools=("read", "Agent")) as stage:
        await begin(stage, 1)
        await stage.press("ctrl+c")
        assert "ctrl+c again: exit" in read_footer(stage)
        await stage.press("ctrl+c")
        await stage.wait(lambda: getattr(stage.app.screen, "title_text", "") == "1 agent is working")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.return_value == 0)


async def test_resend_spares_runs(tmp_path, work):
    waits = {"match": {"last_user": "^begin$"}, "text": "never said", "delay_ms": 30_000}
    answer = {"match": {"last_user": "other"}, "text": "As you like."}
    async with open_stage(tmp_path, spawn(1), waits, answer, SLOW, tools=("read", "Agent")) as stage:
        await begin(stage, 1, rests=False)
        await stage.write("other way")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.state.steering == ["other way"])
        await stage.press("f9")
        await stage.wait(lambda: stage.prompts[-1] == "other way")
        await stage.rest()
        assert count_working(stage) == 1
        stage.app.link.crew.abort()


async def test_viewer_keys_can_be_changed(tmp_path, work, agent_dir):
    keys = {"app.view.stop": "d", "app.view.search": "f", "app.view.close": "w", "app.fleet.open": "f6"}
    (agent_dir / "keybindings.json").write_text(json.dumps({**keys, "tui.select.down": "ctrl+n"}))
    replies = (spawn(1), {"match": {"last_user": "^begin$"}, "text": "On it."}, SLOW)
    async with open_stage(tmp_path, *replies, tools=("read", "Agent")) as stage:
        await begin(stage, 1)
        await stage.wait(lambda: stage.app.screen.query_one("#agents").has_rows)
        await stage.press("down", "f6", "ctrl+n", "enter")
        await stage.wait(lambda: isinstance(stage.app.screen, RunViewer))
        foot = stage.app.screen.query_one("#foot")
        await stage.wait(lambda: "f: search" in str(foot.content) and "d d: stop" in str(foot.content))
        await stage.press("x", "x", "f")
        await stage.write("around")
        await stage.press("enter")
        await stage.wait(lambda: "1 of" in str(foot.content))
        await stage.press("n", "N")
        await stage.wait(lambda: " of " in str(foot.content))
        await stage.press("d", "d")
        await stage.wait(lambda: count_working(stage) == 0)
        await stage.press("k")
        await stage.wait(lambda: "scroll" in str(foot.content) and "stop" not in str(foot.content))
        await stage.press("w")
        assert len(stage.app.screen_stack) == 1


@pytest.mark.parametrize(("key", "left"), [("ctrl+c", ""), ("ctrl+d", "ab")])
async def test_keys_do_not_overtake_letters(tmp_path, work, key, left):
    async with open_stage(tmp_path) as stage:
        for each in ("a", "b", key):  # all at once, as a slow machine reads them
            stage.app.post_message(Key(each, each if len(each) == 1 else None))
        await stage.wait(lambda: stage.editor.text == left)
        await stage.pilot.pause()
        assert (stage.editor.text, "again" in read_footer(stage), stage.app.return_value) == (left, False, None)

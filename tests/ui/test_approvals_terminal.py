"""Approvals and interrupted commands, as a person meets them in a real terminal."""

import json
import time

from retinue.ui.widgets.question import WAIT_LIMIT_S
from tests.ui.pilot_world import open_stage
from tests.ui.terminal_world import call


def edit(path, old, new):
    return {"calls": [call("edit", path=path, edits=[{"oldText": old, "newText": new}])]}


def answer(tmux, key):
    """Press a key of a question, after the pause in which letters are no answers."""
    time.sleep(WAIT_LIMIT_S + 0.1)
    tmux.keys(key)


def test_edit_is_approved_by_its_diff(mocked):
    replies = (edit("src/a.py", "two", "TWO"), edit("src/a.py", "one", "ONE"))
    command = {"calls": [call("bash", command="make clean")]}
    with mocked(*replies, command, {"text": "understood"}) as world:
        (world.agent_dir / "subagents.json").write_text(json.dumps({"approvals": "ask"}))
        (world.agent_dir / "keybindings.json").write_text(json.dumps({"app.approvals.select": "f9"}))
        file = world.work / "src" / "a.py"
        file.parent.mkdir()
        file.write_text("one\ntwo\n")
        with world.tmux() as tmux:
            tmux.say("go")
            screen = tmux.see("a allow, and all changes of files directly in src/ in this session")
            assert "-2 two" in screen and "+2 TWO" in screen and "approvals: ask" in screen
            answer(tmux, "a")
            assert "Allow bash?" in tmux.see('commands that start with "make clean" in this session')
            assert file.read_text() == "ONE\nTWO\n"
            answer(tmux, "r")
            tmux.see("enter: deny with this reason")
            tmux.keys("use git clean", "Enter")
            tmux.see("was denied: denied by the user: use git clean")
            tmux.see("understood")
            tmux.say("/approvals plan")
            tmux.see("approvals: plan mock/")
            tmux.keys("F9")
            tmux.see("never")
            tmux.keys("Up", "Up", "Enter")
            tmux.see("approvals: ask mock/")


def test_interrupted_command_keeps_its_output(mocked):
    failing = {"calls": [call("bash", command="seq 101 120; exit 3")]}
    endless = {"calls": [call("bash", command="echo $((40 + 2)) kept; sleep 61")]}
    with mocked(failing, endless, {"text": "never said"}) as world:
        with world.tmux() as tmux:
            tmux.say("go")
            tmux.see("exit 3 · ")
            screen = tmux.see("42 kept")
            assert "\n    120\n" in screen and "\n    101\n" not in screen
            tmux.keys("Escape")
            assert "42 kept" in tmux.see("interrupted by the user after")
            tmux.say("!echo $((50 + 3)) mine; sleep 61")
            tmux.see("53 mine")
            tmux.keys("Escape")
            tmux.see("interrupted after")
        stored = "".join(file.read_text() for file in world.agent_dir.glob("sessions/**/*.jsonl"))
        assert r"42 kept\n\n\nCommand aborted (interrupted by the user after" in stored
        with world.tmux("-c") as tmux:
            screen = tmux.see("42 kept")
            assert "interrupted by the user after" in screen and "53 mine" in screen
    assert world.wait_until_alone() == []


def test_narrow_footer_keeps_the_mode(mocked):
    with mocked({"text": "done"}) as world, world.tmux(columns=80, rows=24) as tmux:
        tmux.say("/approvals bypass")
        tmux.say("go")
        tmux.see("done")
        for columns in (80, 60, 40, 24):
            tmux.resize(columns, 24)
            tmux.wait(lambda screen: "approvals: bypass" in screen.splitlines()[-1], f"not at {columns} columns")


async def test_status_message_keeps_the_mode(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_stage(tmp_path, size=(40, 24)) as stage:
        stage.app.speech.take("/approvals bypass")
        await stage.wait(lambda: "approvals: bypass" in read_footer(stage))
        await stage.press("ctrl+c")
        assert "ctrl" in read_footer(stage) and "approvals: bypass" in read_footer(stage)


def read_footer(stage):
    return str(stage.app.screen.query_one("#footer").content)

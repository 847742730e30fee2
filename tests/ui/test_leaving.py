import asyncio
import json
import time

import pytest
from textual.widgets import Static

from retinue.core.run import Status
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.picker import Picker
from retinue.ui.screens.prompt import TextPrompt
from tests.ui.pilot_world import open_stage
from tests.ui.terminal_world import call

SLOW = {"match": {"last_user": "look"}, "text": "I look around. " * 400, "chunk_ms": 50, "chunk_chars": 5}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def spawn(words="^begin$"):
    return to(words, calls=[call("Agent", prompt="look", description="the job", subagent_type="Explore")])


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_retry_counts_down_on_one_line(mocked):
    fault = {"kind": "status", "code": 503, "times": 2}
    with mocked({"text": "at last", "fault": fault}) as world:
        (world.agent_dir / "settings.json").write_text(json.dumps({"retry": {"baseDelayMs": 1100, "maxRetries": 3}}))
        with world.tmux(columns=120) as tmux:
            tmux.say("go")
            tmux.see("Trying again in 1 s (1 of 3) · esc: stop")
            screen = tmux.see("(2 of 3) · esc: stop")
            assert screen.count("Trying again") == 1 and "✗" not in screen
            screen = tmux.see("at last")
            assert "Trying again" not in screen and "503" not in screen


def test_background_agent_ends_on_its_call_line(mocked):
    words = "The **ring** is in `log.py`. " + "Further words follow here without an end. " * 30
    replies = [spawn(), to("^begin$", text="It is on it."), to("^look", text=words, delay_ms=500)]
    with mocked(*replies, to("notification", text="All done.")) as world, world.tmux() as tmux:
        tmux.say("begin")
        tmux.see("Running in background")
        tmux.keys("-H", "1b", "5b", "4f")  # the terminal loses the focus
        screen = tmux.see("All done.")
        assert "⎿  ✓ finished" in screen and "Running in background" not in screen
        report = screen[screen.index("╭") : screen.index("╯")]
        assert "The ring is in log.py." in report and "…" in report and "cut here" not in screen
        deadline = time.monotonic() + 5
        while not tmux.is_rung and time.monotonic() < deadline:
            time.sleep(0.03)
        assert tmux.is_rung


def test_leaving_asks_and_says_how_to_resume(mocked):
    replies = [spawn(), to("^begin$", text="It is\non it."), to("^look", text="seen", delay_ms=1500)]
    with mocked(*replies, to("notification", text="The last answer.")) as world, world.tmux() as tmux:
        tmux.say("begin")
        tmux.see("on it.")
        tmux.say("/new")
        tmux.see("1 agent is working")
        tmux.keys("Escape")
        tmux.miss("1 agent is working")
        tmux.keys("C-d")
        tmux.see("Stop them and exit")
        tmux.keys("Down", "Enter")
        tmux.see("waiting for 1 agent to exit · esc: stay")
        assert tmux.end() == (0, True, "0 1 0")
        screen = tmux.screen
    (file,) = world.agent_dir.glob("sessions/*/*.jsonl")
    assert screen.startswith(f"The last answer.\nretinue: To resume this session: retinue --session {file.stem[-36:]}")


def test_desktop_notification_is_safe_text(mocked):
    with mocked({"text": "done \x1b]0;x\x07 and\nso on"}) as world:
        (world.agent_dir / "subagents.json").write_text('{"notifications": "desktop"}')
        with world.open("go") as terminal:
            terminal.wait_for("\x1b]9;retinue: Finished: done ")
            rest = terminal.output.split(b"\x1b]9;retinue: ")[1]
            assert b"\x1b" not in rest.split(b"\x07")[0]


async def working(stage):
    await stage.write("begin")
    await stage.press("enter")
    await stage.wait(lambda: [run.status for run in stage.app.link.crew.session_runs.runs] == [Status.RUNNING])
    await stage.rest()


def shows(stage, words):
    return lambda: words in str(stage.app.screen_stack[0].query_one("#footer").content)


async def test_new_session_stops_agents_when_told(tmp_path, work):
    async with open_stage(tmp_path, spawn(), to("^begin$", text="On it."), SLOW, tools=("read", "Agent")) as stage:
        await working(stage)
        first = stage.app.link.crew.run_id
        stage.app.speech.take("/new")
        await stage.wait(lambda: getattr(stage.app.screen, "title_text", "") == "1 agent is working")
        await stage.wait(lambda: [row.key for row in stage.app.screen.shown] == ["stop", "wait", "cancel"])
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.crew.run_id != first)


@pytest.mark.parametrize("open_screen", [lambda: Picker("Which?", []), lambda: TextPrompt("What?")])
async def test_screen_may_open_at_the_end(tmp_path, work, open_screen):
    async with open_stage(tmp_path) as stage:
        stage.app.push_screen(open_screen())


async def test_screen_may_draw_at_the_end(tmp_path, work):
    drawn = asyncio.Event()

    class LastPanel(Panel):
        async def on_unmount(self):
            await drawn.wait()

    def draw():
        if not stage.app.is_running:
            drawn.set()
            Static().mount(Static())  # in a widget that is gone

    async with open_stage(tmp_path) as stage:
        await stage.app.push_screen(LastPanel("Last", "words"))
        stage.app.screen_stack[0].set_interval(0.01, draw)


async def test_waiting_to_leave_can_be_cancelled(tmp_path, work):
    async with open_stage(tmp_path, spawn(), to("^begin$", text="On it."), SLOW, tools=("read", "Agent")) as stage:
        await working(stage)
        await stage.press("ctrl+d")
        await stage.wait(lambda: len(stage.app.screen_stack) > 1)
        await stage.press("down", "enter")
        await stage.wait(shows(stage, "waiting for 1 agent to exit · esc: stay"))
        await stage.press("escape")
        await stage.wait(lambda: not shows(stage, "to exit")())
        stage.app.link.crew.abort()
        await stage.wait(lambda: stage.app.link.crew.session_runs.runs[0].status is Status.STOPPED)
        assert stage.app.return_value is None


async def test_durable_agents_may_continue(tmp_path, work, agent_dir):
    (agent_dir / "subagents.json").write_text('{"runner": "durable"}')
    async with open_stage(tmp_path, spawn(), to("^begin$", text="On it."), SLOW, tools=("read", "Agent")) as stage:
        await working(stage)
        file = stage.app.link.crew.history.file
        stage.app.speech.take("/new")
        await stage.wait(lambda: len(stage.app.screen_stack) > 1)
        await stage.press("down", "down", "enter")
        await stage.wait(lambda: stage.app.link.crew.history.file != file)
        assert stage.app.link.crew.session_runs.runs == []
        await stage.app.link.crew.sessions.open(str(file))
        await stage.wait(lambda: [run.status for run in stage.app.link.crew.session_runs.runs] == [Status.RUNNING])
        stage.app.link.crew.abort()


def test_usage_limit_is_shown_with_keys(mocked):
    error = {"message": "limit", "kind": "rate", "status": 429, "retry_after_s": 1.5, "times": 1}
    with mocked({"text": "at last", "error": error}) as world:
        (world.agent_dir / "settings.json").write_text(json.dumps({"retry": {"maxAgentDelayMs": 500}}))
        with world.tmux(columns=120) as tmux:
            tmux.say("go")
            screen = tmux.see("1 agent waiting · f7: use the fallback · esc: stop")
            assert "mock: limit until" in screen
            assert "limit until" not in tmux.see("at last")


async def test_session_that_waited_for_a_limit_continues(tmp_path, work):
    refused = {"message": "limit", "kind": "rate", "retryable": True, "retry_after_s": 3600, "times": 1}
    async with open_stage(tmp_path, {"text": "at last", "error": refused}) as stage:
        stage.app.speech.take("go")
        await stage.wait(lambda: stage.app.link.crew.limits)
        name = stage.app.link.crew.session_id
    async with open_stage(tmp_path, {"text": "at last"}) as stage:
        assert not stage.app.link.crew.limits
        stage.app.speech.take(f"/resume {name}")
        await stage.wait(lambda: stage.app.link.crew.limits)
        assert stage.prompts == ["go"]

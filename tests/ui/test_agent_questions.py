"""Questions of subagents in the terminal UI: they wait beside the editor until the user turns to them."""

import pytest

from retinue.core.messages import ToolResultMessage
from retinue.ui.widgets.agent_list import AgentList
from retinue.ui.widgets.question import QuestionBox
from tests.ui.pilot_world import open_stage


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def begin(**question):
    agent = {"subagent_type": "Explore", "prompt": "look", "description": "a look"}
    asked = {"question": "Which port?", **question}
    return [
        to("^go", calls=[{"name": "Agent", "arguments": agent}]),
        to("^go", text="started"),
        to("^look", calls=[{"name": "ask_parent", "arguments": asked}]),
        to("^look", text="found"),
        to("task-question", text="The user knows."),
        to("task-notification", text="all done"),
    ]


@pytest.fixture
def work(tmp_path, monkeypatch, agent_dir):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def box(stage):
    return stage.app.screen_stack[0].query_one(QuestionBox)


def read(stage, part):
    return str(box(stage).query_one(f"#{part}").content)


async def ask(stage):
    box(stage).wait_limit_s = 0.0
    await stage.write("go")
    await stage.press("enter")
    await stage.wait(lambda: box(stage).question is not None)
    await stage.pilot.pause()


def find_answers(stage):
    session_runs = stage.app.link.crew.session_runs
    messages = session_runs.read_messages(session_runs.runs[0].id)
    return [message.content[0].text for message in messages if isinstance(message, ToolResultMessage)]


async def wait_for_end(stage):
    session_runs = stage.app.link.crew.session_runs
    await stage.wait(lambda: session_runs.runs[0].status.is_final)
    await stage.wait(lambda: box(stage).question is None)


@pytest.mark.parametrize(
    ("options", "keys", "answer"),
    [
        ((), ["tab", *"9000", "enter"], "9000"),
        ((), ["tab", "enter"], "no answer: decide yourself and say so"),
        (("80", "8080"), ["tab", "2"], "8080"),
        (("80", "8080"), ["tab", "down", "down", "enter", *"90", "enter"], "90"),
        (("80", "8080"), ["tab", "escape", "tab", "enter"], "80"),
    ],
)
async def test_user_answers_a_subagent(tmp_path, work, options, keys, answer):
    async with open_stage(tmp_path, *begin(options=list(options)), tools=None) as stage:
        await ask(stage)
        stage.editor.put("a draft")
        assert "Which port?" in read(stage, "asked") and "answer" in read(stage, "how")
        await stage.press(*keys)
        await wait_for_end(stage)
        assert (find_answers(stage), stage.editor.text) == ([answer], "a draft")


async def test_question_leaves_the_keys_alone(tmp_path, work):
    async with open_stage(tmp_path, *begin(options=["80"]), tools=None) as stage:
        await ask(stage)
        await stage.wait(lambda: not stage.app.link.state.is_busy)
        await stage.write("1 yes")
        rows = str(stage.app.screen.query_one(AgentList).content)
        assert (stage.editor.text, "waiting for an answer" in rows) == ("1 yes", True)
        await stage.press("tab", "1")
        await wait_for_end(stage)
        assert find_answers(stage) == ["80"]


async def test_tab_returns_to_the_editor(tmp_path, work):
    async with open_stage(tmp_path, *begin(), tools=None) as stage:
        await ask(stage)
        await stage.press("tab", "x", "tab", "y")
        assert (stage.editor.text, box(stage).is_aside) == ("y", True)
        await stage.press("tab", "z", "enter")
        await wait_for_end(stage)
        assert find_answers(stage) == ["z"]

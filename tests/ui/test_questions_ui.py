import asyncio
import json

import pytest

from retinue.core.run import Question
from retinue.ui.screens.panel import Panel
from retinue.ui.widgets.question import QuestionBox
from tests.ui.pilot_world import open_stage

HOSTILE = "\n".join(["echo 1", *(f"echo {number}" for number in range(2, 60)), f"ls;{' ' * 400}rm -rf \x1b[8m/\u202e"])


@pytest.fixture
def work(tmp_path, monkeypatch, agent_dir):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (agent_dir / "subagents.json").write_text(json.dumps({"approvals": "always"}))
    return folder


def call(*commands):
    return {"calls": [{"name": "bash", "arguments": {"command": command}} for command in commands]}


def box(stage):
    return stage.app.screen_stack[0].query_one(QuestionBox)


def read(stage, part):
    return str(box(stage).query_one(f"#{part}").content)


async def ask(stage, *, wait_limit_s=0.0, waiting=1):
    box(stage).wait_limit_s = wait_limit_s
    await stage.write("go")
    await stage.press("enter")
    await stage.wait(lambda: len(stage.app.link.state.questions) == waiting and box(stage).question is not None)
    await stage.pilot.pause()


def results(stage):
    messages = stage.app.link.crew.history.list_messages()
    return [message.content[0].text.strip() for message in messages if type(message).__name__ == "ToolResultMessage"]


DENIED = '[Denied] Tool "bash" was denied: denied by the user'


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("keys", "result"),
    [
        (["y"], "hi"),
        (["n"], DENIED),
        (["3"], DENIED),
        (["1"], "hi"),
        (["escape"], DENIED),
        (["enter"], DENIED),
        (["up", "up", "enter"], "hi"),
    ],
)
async def test_keys_answer_without_touching_words(tmp_path, work, keys, result):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage)
        stage.editor.put("a draft")
        await stage.press(*keys)
        await stage.rest()
        assert (results(stage), stage.editor.text, box(stage).display) == ([result], "a draft", False)


async def test_allowed_calls_are_not_asked_again(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), call("echo hi"), {"text": "done"}) as stage:
        await ask(stage)
        await stage.press("a")
        await stage.rest()
        assert results(stage) == ["hi", "hi"]


async def test_oldest_question_comes_first(tmp_path, work):
    async with open_stage(tmp_path, call("echo 1", "echo 2", "echo 3"), {"text": "done"}) as stage:
        await ask(stage, waiting=3)
        assert ("2 more" in read(stage, "asked"), read(stage, "matter")) == (True, "echo 1")
        await stage.press("n")
        await stage.wait(lambda: read(stage, "matter") == "echo 2")
        assert "1 more" in read(stage, "asked")
        await stage.press("y", "n")
        await stage.rest()
        assert results(stage) == [DENIED, "2", DENIED]


@pytest.mark.attack("E10")
async def test_whole_command_can_be_read(tmp_path, work):
    async with open_stage(tmp_path, call(HOSTILE), {"text": "done"}) as stage:
        await ask(stage)
        assert f"{len(HOSTILE):,} characters, 60 lines" in read(stage, "asked")
        assert read(stage, "matter").splitlines()[-1] == "ls; ⟨400 blanks⟩ rm -rf \\x1b[8m/\\u202e"
        scroll = box(stage).query_one("#matter-scroll")
        for _ in range(10):
            await stage.press("pagedown")
        assert scroll.scroll_y == scroll.max_scroll_y > 0
        await stage.press("n")
        await stage.rest()


async def test_command_is_read_line_by_line(tmp_path, work):
    async with open_stage(tmp_path, call(HOSTILE), {"text": "done"}) as stage:
        await ask(stage)
        scroll, places = box(stage).query_one("#matter-scroll"), []
        for key in ("shift+down", "shift+down", "shift+up"):
            await stage.press(key)
            places.append(scroll.scroll_offset.y)
        assert (places, len(stage.app.link.state.questions)) == ([1, 2, 1], 1)
        await stage.press("n")
        await stage.rest()


async def test_writing_on_is_no_answer(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage, wait_limit_s=60)
        await stage.write("yes and no")
        await stage.press("enter")
        assert (len(stage.app.link.state.questions), stage.editor.text) == (1, "yes and no")
        await stage.press("escape")
        await stage.rest()
        assert (results(stage), stage.editor.text) == ([DENIED], "yes and no")


async def test_choosing_from_a_list_is_no_answer(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage, wait_limit_s=60)
        await stage.press("down", "down", "enter")
        assert (len(stage.app.link.state.questions), stage.editor.text) == (1, "")
        await stage.press("escape")
        await stage.rest()
        assert results(stage) == [DENIED]


async def test_key_pressed_twice_answers_once(tmp_path, work):
    async with open_stage(tmp_path, call("echo 1", "echo 2"), {"text": "done"}) as stage:
        await ask(stage, waiting=2)
        box(stage).wait_limit_s = 60
        await stage.press("y")
        await stage.wait(lambda: read(stage, "matter") == "echo 2")
        await stage.press("y")
        assert (len(stage.app.link.state.questions), stage.editor.text) == (1, "")
        await stage.press("escape")
        await stage.rest()
        assert results(stage) == ["1", DENIED]


async def test_writing_may_begin_at_any_time(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage)
        box(stage).wait_limit_s = 60
        await stage.write("draft any")
        assert (len(stage.app.link.state.questions), stage.editor.text) == (1, "draft any")
        await stage.press("escape")
        await stage.rest()


async def test_answers_can_be_clicked(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage)
        await stage.pilot.click("#answers", offset=(5, 0))
        await stage.rest()
        assert results(stage) == ["hi"]


async def test_question_can_be_set_aside(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage)
        await stage.press("tab", "slash", "q", "u", "tab")
        assert (len(stage.app.link.state.questions), stage.editor.text) == (1, "/quit")
        await stage.press("escape", "tab", "y")
        await stage.rest()
        assert (results(stage), stage.editor.text) == (["hi"], "/quit")


async def test_stopping_takes_questions_away(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        await ask(stage)
        await stage.press("ctrl+c")
        await stage.rest()
        await stage.wait(lambda: box(stage).question is None)


async def test_hidden_questions_are_told_of(tmp_path, work):
    async with open_stage(tmp_path, call("echo hi"), {"text": "done"}) as stage:
        box(stage).wait_limit_s = 0
        stage.app.show_panel("Report", "text")
        await stage.wait(lambda: isinstance(stage.app.screen, Panel))
        stage.app.speech.say("go")
        await stage.wait(lambda: stage.app._notifications)
        assert [note.message for note in stage.app._notifications] == ["the agent asks: Allow bash?"]
        await stage.press("escape")
        await stage.wait(lambda: box(stage).question is not None and len(stage.app.screen_stack) == 1)
        await stage.press("n")
        await stage.rest()


async def put(stage, question):
    """Let somebody in the crew ask."""
    box(stage).wait_limit_s = 0
    desk = stage.app.link.crew.questions
    task = asyncio.ensure_future(desk.ask(question))
    await stage.wait(lambda: box(stage).question == question)
    await stage.pilot.pause()
    return task


async def test_choices_are_taken_by_number(tmp_path, work):
    options = ("red", "green", "[b]blue[/b]")
    question = Question(
        id="q", run_id="r7", agent="Plan", kind="select", title="Which?", options=options, default="red"
    )
    async with open_stage(tmp_path) as stage:
        answer = await put(stage, question)
        assert read(stage, "asked").startswith("? Plan (run r7): Which?")
        assert "3 [b]blue[/b]" in read(stage, "answers")
        await stage.press("3")
        assert await answer == "[b]blue[/b]"


async def test_free_answers_are_written(tmp_path, work):
    question = Question(id="q", run_id="r7", kind="input", title="Name?", options=(), default="")
    async with open_stage(tmp_path) as stage:
        stage.editor.put("a draft")
        answer = await put(stage, question)
        await stage.write("yes")
        await stage.press("enter")
        assert await answer == "yes"
        await stage.wait(lambda: stage.editor.has_focus)
        assert stage.editor.text == "a draft"


async def test_free_answers_can_be_refused(tmp_path, work):
    question = Question(id="q", run_id="r7", kind="input", title="Name?", options=(), default="nobody")
    async with open_stage(tmp_path) as stage:
        answer = await put(stage, question)
        await stage.write("me")
        await stage.press("escape")
        assert await answer == "nobody"


@pytest.mark.parametrize("size", [(20, 5), (30, 12), (80, 24), (300, 60)])
async def test_answers_stay_in_sight(tmp_path, work, size):
    async with open_stage(tmp_path, call(HOSTILE), {"text": "done"}, size=size) as stage:
        await ask(stage)
        await stage.pilot.pause(0.1)
        answers = box(stage).query_one("#answers").region
        matter = box(stage).query_one("#matter-scroll").region
        assert (answers.height > 0, matter.height > 0, answers.bottom <= size[1]) == (True, True, True)
        await stage.press("escape")
        await stage.rest()


async def test_children_ask_under_their_name(tmp_path, work):
    start = {"name": "Agent", "arguments": {"subagent_type": "general-purpose", "prompt": "run it", "description": "x"}}
    replies = (
        {"match": {"last_user": "go"}, "calls": [start]},
        {"match": {"last_user": "run it"}, **call("echo hi")},
        {"text": "done"},
    )
    async with open_stage(tmp_path, *replies, tools=None) as stage:
        box(stage).wait_limit_s = 0
        await stage.write("go")
        await stage.press("enter")
        await stage.wait(lambda: stage.app.link.state.questions)
        if not stage.app.link.state.questions[0].agent:  # starting an agent is asked about too
            await stage.press("y")
            await stage.wait(lambda: any(question.agent for question in stage.app.link.state.questions))
        run = stage.app.link.crew.session_runs.runs[0]
        await stage.wait(lambda: read(stage, "asked").startswith('? general-purpose "x": Allow bash?'))
        await stage.press("y")
        await stage.wait(lambda: run.status.is_final)
        await stage.rest()

"""The first start without a key, `/login`, and models that need a key."""

import json
from contextlib import asynccontextmanager

import pytest
from textual.widgets import Input

from retinue.core.model import ModelInfo
from retinue.settings import providers
from retinue.testing import MockServer
from retinue.ui.screens.picker import ModelPicker, Picker
from retinue.ui.screens.prompt import TextPrompt
from retinue.ui.widgets.welcome import Welcome
from tests.ui.menu_world import read_title
from tests.ui.pilot_world import open_stage

GOOD, WRONG = "sk-good-0123456789", "sk-wrong-9876543210"
LOCAL = ModelInfo("ollama", "tiny:1b", "openai-completions", "tiny:1b (Ollama)", "http://127.0.0.1:9/v1")
DEFAULT = "anthropic/claude-sonnet-5"


@pytest.fixture(scope="module")
def server():
    with MockServer.in_thread({"replies": [{"text": "the mock answers"}], "repeat": True}, key=GOOD) as server:
        yield server


@pytest.fixture
def work(tmp_path, monkeypatch, server):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    return folder


@pytest.fixture
def local(monkeypatch):
    monkeypatch.delenv("RETINUE_NO_LOCAL")
    monkeypatch.setattr(providers, "_find_local", lambda: (LOCAL,))


@asynccontextmanager
async def open_first(tmp_path, **request):
    async with open_stage(tmp_path, **{"model": None, **request}) as stage:
        await stage.wait(lambda: welcome(stage) is not None)
        yield stage


def welcome(stage):
    widget = stage.app.screen_stack[0].query_one(Welcome)
    return [choice.key for choice in widget._choices if not choice.is_off] if widget.display else None


def model(stage):
    return stage.app.link.crew.model.ref


def screen(agent_dir):
    path = agent_dir / "retinue" / "screen.json"
    return json.loads(path.read_text()) if path.exists() else {}


async def type_key(stage, key):
    await stage.wait(lambda: isinstance(stage.app.screen, TextPrompt) and stage.app.screen.is_mounted)
    assert stage.app.screen.query_one(Input).password
    stage.app.screen.query_one(Input).value = key
    await stage.press("enter")


async def log_in(stage, key, name="anthropic"):
    stage.app.speech.take(f"/login {name}")
    await type_key(stage, key)


def test_first_start_leads_to_a_model(world, server):
    world.model = []
    world.environment["ANTHROPIC_BASE_URL"] = server.url
    with world.tmux(columns=140) as tmux:
        screen = tmux.see("1  Enter an API key")
        assert "none found" in screen and "3  Try it offline" in screen and "/help" in screen
        tmux.keys("1")
        tmux.see("Which provider is the key for?")
        tmux.keys("anthro", "Enter")
        tmux.see("API key for anthropic")
        tmux.keys(GOOD, "Enter")
        screen = tmux.see("the key works and is stored in ~/.pi/agent/auth.json; model: anthropic/claude")
        assert "What should I work on?" in screen and GOOD not in screen
        tmux.say("hello there")
        tmux.see("the mock answers")
        tmux.keys("C-d")
        assert tmux.end()[0] == 0
    files = [path for path in world.home.rglob("*") if path.is_file() and GOOD in path.read_text()]
    assert [path.name for path in files] == ["auth.json"]


async def test_offline_is_remembered(tmp_path, work, agent_dir):
    async with open_first(tmp_path) as stage:
        assert (welcome(stage), stage.notes) == (["login", "offline"], [])
        await stage.press("down", "enter")
        await stage.wait(lambda: screen(agent_dir) == {"start": "offline"})
        await stage.wait(lambda: welcome(stage) == [])
        assert model(stage) == "offline/rules"
    async with open_first(tmp_path) as stage:
        assert (welcome(stage), stage.notes) == ([], [])


async def test_local_server_can_be_chosen(tmp_path, work, agent_dir, local):
    async with open_first(tmp_path) as stage:
        assert (welcome(stage), model(stage)) == (["login", "local", "offline"], "ollama/tiny:1b")
        assert "tiny:1b (Ollama)" in [choice.note for choice in stage.app.screen.query_one(Welcome)._choices]
        await stage.press("3")
        await stage.wait(lambda: model(stage) == "offline/rules" and screen(agent_dir) == {"start": "offline"})
        stage.app.choose_start("")
        await stage.wait(lambda: welcome(stage))
        await stage.press("2")
        await stage.wait(lambda: model(stage) == "ollama/tiny:1b" and screen(agent_dir) == {"start": "local"})
        assert stage.editor.text == ""


async def test_missing_server_cannot_be_chosen(tmp_path, work, agent_dir):
    async with open_first(tmp_path) as stage:
        await stage.press("2")
        assert (welcome(stage), screen(agent_dir), len(stage.app.screen_stack)) == (["login", "offline"], {}, 1)


async def test_prompt_is_simply_answered(tmp_path, work):
    async with open_first(tmp_path) as stage:
        await stage.write("hello 2")
        assert stage.editor.text == "hello 2"
        await stage.press("enter")
        await stage.wait(lambda: stage.prompts == ["hello 2"] and welcome(stage) is None)
        await stage.rest()


@pytest.mark.parametrize("reason", ["flag", "key", "settings"])
async def test_choices_are_for_the_first_start_only(tmp_path, work, agent_dir, monkeypatch, reason):
    agent_dir.mkdir(parents=True, exist_ok=True)
    if reason == "key":
        monkeypatch.setenv("ANTHROPIC_API_KEY", GOOD)
    elif reason == "settings":
        (agent_dir / "settings.json").write_text('{"defaultModel": "offline/rules"}')
    async with open_first(tmp_path, model="offline/rules" if reason == "flag" else None) as stage:
        assert welcome(stage) == []


async def test_wrong_key_is_told_and_not_stored(tmp_path, work, agent_dir):
    async with open_first(tmp_path) as stage:
        await log_in(stage, WRONG)
        await stage.wait(lambda: stage.notes)
        assert "anthropic does not accept this key; nothing is stored" in stage.notes[-1]
        assert (WRONG in stage.notes[-1], (agent_dir / "auth.json").exists()) == (False, False)
        assert (model(stage), welcome(stage)) == ("offline/rules", ["login", "offline"])


@pytest.mark.parametrize(("key", "is_stored"), [("enter", False), ("escape", False), ("down", True)])
async def test_silent_provider_is_asked_about(tmp_path, work, agent_dir, monkeypatch, key, is_stored):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    async with open_first(tmp_path) as stage:
        await log_in(stage, GOOD)
        await stage.wait(lambda: read_title(stage) == "Store the key anyway?" and stage.app.screen.shown)
        await stage.press(key, *(["enter"] if is_stored else []))
        await stage.wait(lambda: stage.notes)
        assert (agent_dir / "auth.json").exists() == is_stored
        assert model(stage) == (DEFAULT if is_stored else "offline/rules")


async def test_login_keeps_a_model_that_was_chosen(tmp_path, work):
    async with open_stage(tmp_path) as stage:
        before = model(stage)
        await log_in(stage, GOOD)
        await stage.wait(lambda: stage.notes)
        assert (model(stage), "model:" in stage.notes[-1]) == (before, False)
        assert DEFAULT in [info.ref for info in stage.app.link.crew.selection.list_models()]


async def test_new_key_replaces_the_one_in_use(tmp_path, work, monkeypatch, server):
    monkeypatch.setenv("ANTHROPIC_API_KEY", WRONG)
    async with open_first(tmp_path, model=DEFAULT) as stage:
        await log_in(stage, GOOD)
        await stage.wait(lambda: stage.notes)
        stage.app.speech.take("look")
        await stage.wait(lambda: stage.app.link.state.talk.last_reply is not None)
        assert stage.app.link.state.talk.last_reply.text == "the mock answers"


async def test_key_on_the_line_is_refused_and_forgotten(tmp_path, work, home):
    async with open_first(tmp_path) as stage:
        await stage.write(f"/login anthropic {GOOD}")
        await stage.press("enter")
        await stage.wait(lambda: stage.notes)
        assert (GOOD in stage.notes[-1], stage.notes[-1].startswith("write only the provider")) == (False, True)
        await stage.press("up")
        assert GOOD not in stage.editor.text
    assert [path for path in home.rglob("*") if path.is_file() and GOOD in path.read_text()] == []


async def test_unknown_provider_is_told(tmp_path, work):
    async with open_first(tmp_path) as stage:
        stage.app.speech.take("/login antropic")
        await stage.wait(lambda: stage.notes)
        assert "did you mean 'anthropic'" in stage.notes[-1] and len(stage.app.screen_stack) == 1


async def test_models_without_a_key_come_last(tmp_path, work, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "key-1")
    async with open_first(tmp_path, model="offline/rules") as stage:
        stage.app.speech.take("/model")
        await stage.wait(lambda: isinstance(stage.app.screen, ModelPicker) and stage.app.screen.shown)
        shown = stage.app.screen.shown
        usable = [row.key.split("/")[0] for row in shown if not row.is_off]
        assert (set(usable), shown[len(usable)].is_off) == ({"groq", "offline"}, True)
        assert shown[len(usable)].note.endswith("· needs a key: /login anthropic")
        await stage.write("gpt-oss")
        shown = [row.is_off for row in stage.app.screen.shown]
        assert (shown, shown[0], shown[-1]) == (sorted(shown), False, True)
        await stage.press("escape")


@pytest.mark.parametrize("how", ["picker", "name"])
async def test_locked_model_leads_to_login(tmp_path, work, how):
    wanted = "anthropic/claude-opus-4-5"
    async with open_first(tmp_path, model="offline/rules") as stage:
        if how == "name":
            stage.app.speech.take(f"/model {wanted}")
        else:
            stage.app.speech.take("/model")
            await stage.wait(lambda: isinstance(stage.app.screen, Picker) and stage.app.screen.shown)
            await stage.write(wanted)
            await stage.press("enter")
        await type_key(stage, GOOD)
        await stage.wait(lambda: model(stage) == wanted)
        assert stage.notes[-1].endswith(f"; model: {wanted}")

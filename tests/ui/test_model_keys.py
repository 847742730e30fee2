"""Choosing the models that keys cycle through, and keeping models and thinking levels for other sessions."""

import json

import pytest

from retinue.ui.screens.picker import ModelPicker, ThinkingPicker
from retinue.ui.screens.scope_picker import ScopePicker
from tests.ui.pilot_world import open_stage

PROVIDER = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "none"}
MODELS = {
    "one": {**PROVIDER, "models": [{"id": "a", "reasoning": True}, {"id": "b"}]},
    "two": {**PROVIDER, "models": [{"id": "c"}, {"id": "d"}]},
}
ALL = ["one/a", "one/b", "two/c", "two/d"]


@pytest.fixture
def work(tmp_path, monkeypatch, agent_dir):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    agent_dir.mkdir(parents=True, exist_ok=True)
    (agent_dir / "models.json").write_text(json.dumps({"providers": MODELS}))
    return folder


@pytest.fixture
def settings(agent_dir, work):
    """The user's settings.json, to be written before and read after."""
    path = agent_dir / "settings.json"

    def use(**values):
        if values:
            path.write_text(json.dumps(values))
        return json.loads(path.read_text()) if path.exists() else {}

    return use


def open_models(tmp_path, **request):
    return open_stage(tmp_path, **{"model": "one/a", **request})


async def call(stage, command, kind):
    stage.app.speech.take(command)
    await stage.wait(lambda: isinstance(stage.app.screen, kind) and stage.app.screen.shown)
    await stage.pilot.pause()


def rows(stage):
    """The models that are in, and those that are not."""
    shown = [choice for choice in stage.app.screen.shown if not choice.key.startswith("offline/")]
    inside = [choice.key for choice in shown if choice.mark]
    return inside, [choice.key for choice in shown if not choice.mark]


def list_usable(stage):
    return [choice.key for choice in stage.app.screen.shown if not choice.is_off]


def hint(stage):
    return str(stage.app.screen.query_one("#hint").content)


async def turn(stage, key, count):
    seen = []
    for _ in range(count):
        await stage.press(key)
        seen.append(stage.app.link.crew.model.ref)
    return seen


async def test_single_models_are_taken_out_and_in(tmp_path, settings):
    async with open_models(tmp_path) as stage:
        await call(stage, "/scoped-models", ScopePicker)
        assert (rows(stage), "all enabled" in hint(stage)) == ((ALL, []), True)
        await stage.press("down", "enter")
        assert rows(stage) == (["one/a", "two/c", "two/d"], ["one/b"])
        assert "not saved" in hint(stage)
        await stage.press("enter", "escape")
        assert stage.app.link.crew.selection.scope[:2] == ["one/a", "two/d"]
        assert settings() == {}


async def test_keys_turn_through_the_scope(tmp_path, settings):
    settings(enabledModels=["two/*", "one/a:high"])
    async with open_models(tmp_path) as stage:
        assert await turn(stage, "ctrl+p", 3) == ["two/c", "two/d", "one/a"]
        assert stage.app.link.crew.selection.thinking == "high"
        assert await turn(stage, "ctrl+shift+p", 2) == ["two/d", "two/c"]


async def test_all_are_cleared_and_enabled(tmp_path, settings):
    settings(enabledModels=["one/b", "two/gone"])
    async with open_models(tmp_path) as stage:
        await call(stage, "/scoped-models", ScopePicker)
        assert rows(stage) == (["one/b", "two/gone"], ["one/a", "two/c", "two/d"])
        await stage.press("ctrl+x")
        assert (rows(stage)[0], "none enabled, which means all" in hint(stage)) == ([], True)
        await stage.write("two")
        await stage.press("ctrl+a")
        assert rows(stage) == (["two/c", "two/d"], [])
        await stage.press("ctrl+x")
        assert rows(stage) == ([], ["two/c", "two/d"])
        await stage.press("escape")


async def test_provider_is_taken_in_and_out(tmp_path, settings):
    async with open_models(tmp_path) as stage:
        await call(stage, "/scoped-models", ScopePicker)
        await stage.press("ctrl+x", "ctrl+p")
        assert rows(stage) == (["one/a", "one/b"], ["two/c", "two/d"])
        await stage.press("ctrl+p")
        assert rows(stage) == ([], ALL)
        await stage.press("escape")


async def test_order_is_changed_and_saved(tmp_path, settings):
    settings(enabledModels=["one/a:high", "one/b", "two/c"], theme="dark")
    async with open_models(tmp_path) as stage:
        await call(stage, "/scoped-models", ScopePicker)
        await stage.press("alt+down", "alt+down", "alt+down", "alt+up")
        assert (rows(stage)[0], stage.app.screen.lit.key) == (["one/b", "one/a", "two/c"], "one/a")
        await stage.press("ctrl+s")
        await stage.wait(lambda: hint(stage).endswith(", saved"))
        await stage.press("escape")
        assert await turn(stage, "ctrl+p", 3) == ["two/c", "one/b", "one/a"]
    assert settings() == {"enabledModels": ["one/b", "one/a:high", "two/c"], "theme": "dark"}


async def test_saving_all_takes_the_key_out(tmp_path, settings):
    settings(enabledModels=["one/a"], theme="dark")
    async with open_models(tmp_path) as stage:
        await call(stage, "/scoped-models", ScopePicker)
        await stage.press("ctrl+a", "ctrl+s")
        await stage.wait(lambda: settings() == {"theme": "dark"})
        await stage.press("escape")


async def test_choice_goes_along_to_other_sessions(tmp_path, settings):
    async with open_models(tmp_path) as stage:
        stage.app.link.crew.selection.limit(["two/d", "two/c"])
        stage.app.speech.take("/new")
        await stage.pilot.pause(0.1)
        assert await turn(stage, "ctrl+p", 2) == ["two/c", "two/d"]


async def test_project_that_decides_is_named(tmp_path, settings, work):
    (work / ".pi").mkdir()
    (work / ".pi" / "settings.json").write_text(json.dumps({"enabledModels": ["one/*"]}))
    async with open_models(tmp_path, approve=True) as stage:
        await call(stage, "/scoped-models", ScopePicker)
        await stage.press("enter", "ctrl+s")
        await stage.wait(lambda: "overrides it here" in hint(stage))
        await stage.press("escape")


async def test_model_is_kept_for_all_sessions(tmp_path, settings):
    async with open_models(tmp_path) as stage:
        await call(stage, "/model", ModelPicker)
        await stage.press("down", "ctrl+s")
        await stage.wait(lambda: stage.app.link.crew.model.ref == "one/b" and stage.notes)
        assert stage.notes[-1] == "model: one/b, saved for all sessions"
    assert settings() == {"defaultProvider": "one", "defaultModel": "b"}


async def test_tab_shows_the_other_models(tmp_path, settings):
    settings(enabledModels=["two/d", "two/c"])
    async with open_models(tmp_path) as stage:
        await call(stage, "/model", ModelPicker)
        seen = []
        for key in ("tab", "tab", "escape"):
            picker = stage.app.screen
            seen.append((picker.title_text, list_usable(stage), picker.lit.key))
            await stage.press(key)
    everything = ["two/d", "two/c", "one/a", "one/b", "offline/rules"]
    scoped = ("Model: scoped", ["two/d", "two/c"], "two/d")
    assert seen == [scoped, ("Model: all", everything, "one/a"), scoped]


async def test_without_a_scope_tab_does_nothing(tmp_path, settings):
    async with open_models(tmp_path) as stage:
        await call(stage, "/model", ModelPicker)
        await stage.press("tab")
        assert (stage.app.screen.title_text, len(list_usable(stage)), "tab" in hint(stage)) == ("Model", 5, False)
        await stage.press("escape")


async def test_kept_model_outside_of_scope_is_told(tmp_path, settings):
    settings(enabledModels=["two/*"])
    async with open_models(tmp_path) as stage:
        await call(stage, "/model", ModelPicker)
        await stage.press("tab", "ctrl+s")
        await stage.wait(lambda: stage.notes)
        assert stage.notes[-1] == "model: one/a; saved, but enabledModels, where it is not named, overrides it here"


async def test_thinking_is_kept_for_all_sessions(tmp_path, settings):
    async with open_models(tmp_path, thinking="low") as stage:
        await call(stage, "/thinking", ThinkingPicker)
        await stage.press("down", "ctrl+s")
        await stage.wait(lambda: stage.app.link.crew.selection.thinking == "medium" and stage.notes)
    assert settings() == {"defaultThinkingLevel": "medium"}


async def test_file_that_cannot_be_read_is_told(tmp_path, agent_dir, work):
    async with open_models(tmp_path) as stage:
        (agent_dir / "settings.json").write_text("{")
        await call(stage, "/scoped-models", ScopePicker)
        await stage.press("enter", "ctrl+s")
        await stage.wait(lambda: stage.app._notifications)
        assert "not saved" in hint(stage)
        await stage.press("escape")
    assert (agent_dir / "settings.json").read_text() == "{"


async def test_new_model_is_taken_by_its_name(tmp_path, work, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-1")
    async with open_models(tmp_path) as stage:
        stage.app.speech.take("/model anthropic/claude-opus-99")
        await stage.wait(lambda: stage.app.link.crew.selection.model.ref == "anthropic/claude-opus-99")
        await stage.wait(lambda: any("is not in the list of models" in note for note in stage.notes))

"""Every screen as a text in screens/: `screen_world.py` says how they are compared and renewed."""

import json
from pathlib import Path

import pytest

from retinue.core import events as ev
from retinue.ui.screens.prompt import TextPage, TextPrompt
from retinue.ui.screens.scope_picker import ScopePicker
from retinue.ui.screens.tree_picker import TreePicker
from retinue.ui.screens.trust import TrustScreen
from retinue.ui.state import apply
from tests.ui.menu_world import enter, open_menu, read_rows, read_title
from tests.ui.screen_tales import ASKED, BRANCHED, INSIDE, NESTED, ONE, OTHER_WAY, TALK, TROUBLE, TWELVE
from tests.ui.screen_world import FILES, NOW_MS, Look, Screens, compare

USUAL = (Look(), Look(theme="light"), Look(40, 24), Look(200, 40))
BOTH = (Look(), Look(theme="light"))


@pytest.fixture
def screens(home, monkeypatch):
    return Screens(home, monkeypatch)


def happen(stage, *events):
    """Let something happen to the main agent."""
    for event in events:
        apply(stage.app.link.state, event)
    stage.app.link.touch()


def begin(stage):
    run_id = stage.app.link.state.run_id
    happen(stage, ev.RunStarted(run_id=run_id, at_ms=NOW_MS - 83_000))
    return run_id


async def test_empty(screens):
    async with screens.open() as stage:
        await compare(stage, "empty", *USUAL, Look(20, 8))


async def test_first_start(screens):
    screens.forget_models()
    async with screens.open(model=None) as stage:
        await stage.wait(lambda: stage.app.screen.query_one("#welcome").display)
        await compare(stage, "first-start", *USUAL, Look(80, 24))


async def test_key_asked_for(screens):
    async with screens.open() as stage:
        stage.app.speech.take("/login anthropic")
        await stage.wait(lambda: isinstance(stage.app.screen, TextPrompt) and stage.app.screen.is_mounted)
        await stage.write("sk-secret")
        await compare(stage, "login", Look(), Look(40, 24))


async def test_conversation(screens):
    async with screens.open(*TALK) as stage:
        await compare(stage, "conversation", Look(100, 60), Look(100, 60, "light"), Look(40, 24), Look(200, 40))


async def test_conversation_opened(screens):
    async with screens.open(*TALK) as stage:
        await stage.press("ctrl+o")
        await compare(stage, "opened", Look(100, 70))


async def test_one_agent(screens):
    screens.show_runs(ONE)
    async with screens.open(*TALK[:4]) as stage:
        begin(stage)
        await compare(stage, "one-agent", *USUAL)


async def test_twelve_agents(screens):
    screens.show_runs(TWELVE)
    async with screens.open(*TALK[:4]) as stage:
        begin(stage)
        await compare(stage, "twelve-agents", *USUAL)


async def test_nested_agents(screens):
    screens.show_runs(NESTED)
    async with screens.open(*TALK[:4]) as stage:
        begin(stage)
        await compare(stage, "nested", *USUAL)


async def test_fleet_chosen_from(screens):
    screens.show_runs(NESTED)
    async with screens.open(*TALK[:4]) as stage:
        await stage.wait(lambda: stage.app.screen.query_one("#agents").display)
        await stage.press("down", "down", "down")
        await compare(stage, "fleet", Look())


async def test_error(screens):
    async with screens.open(*TROUBLE) as stage:
        stage.app.speech.take("/nothing")
        await compare(stage, "error", *USUAL)


async def test_approval(screens):
    screens.show_runs(NESTED)
    async with screens.open(*TALK[:4]) as stage:
        begin(stage)
        await stage.write("meanwhile")
        happen(stage, *(ev.Asked(run_id=question.run_id, question=question) for question in ASKED))
        await compare(stage, "approval", *USUAL, Look(80, 12))


async def test_queued_words(screens):
    async with screens.open(*TALK[:4]) as stage:
        waiting = ev.Steered(run_id=begin(stage), steering=["only look at tests"], follow_up=["tell me", "and stop"])
        happen(stage, waiting)
        await compare(stage, "queued", *BOTH)


async def test_viewer(screens):
    screens.show_runs(NESTED, INSIDE)
    screens.hide_runs()
    async with screens.open(*TALK[:4]) as stage:
        stage.app.view_run(NESTED[2].id)
        await compare(stage, "viewer", *USUAL)


async def test_completions(screens):
    async with screens.open() as stage:
        await stage.write("/t")
        await compare(stage, "completion", *USUAL)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("menu", ()),
        ("menu-types", ("Agent types",)),
        ("menu-type", ("Agent types", "Explore")),
        ("menu-settings", ("Settings",)),
        ("menu-create", ("Create new agent",)),
    ],
)
async def test_menus(screens, name, path):
    async with screens.open() as stage:
        await open_menu(stage, *path)
        await stage.wait(lambda: read_rows(stage))
        await compare(stage, name, Look(), Look(theme="light"), Look(40, 24))


async def test_running_agents_menu(screens):
    screens.show_runs(TWELVE)
    screens.hide_runs()
    async with screens.open() as stage:
        await open_menu(stage)
        await enter(stage, "Running agents")
        await stage.wait(lambda: read_title(stage).startswith("Running agents"))
        await compare(stage, "menu-runs", Look(), Look(40, 24), Look(200, 40))


async def test_choosing_a_model(screens):
    async with screens.open() as stage:
        stage.app.speech.take("/model")
        await stage.wait(lambda: read_rows(stage))
        await compare(stage, "models", *BOTH, Look(40, 24))


@pytest.mark.parametrize(("name", "keys"), [("models-scoped", []), ("models-all", ["tab"])])
async def test_choosing_among_scoped_models(screens, name, keys):
    async with screens.open() as stage:
        stage.app.link.crew.selection.limit(["local/b-model", "gone/c-model"])
        stage.app.speech.take("/model")
        await stage.wait(lambda: read_rows(stage))
        await stage.press(*keys)
        await compare(stage, name, *BOTH, Look(40, 24))


async def test_scoped_models(screens):
    async with screens.open() as stage:
        stage.app.link.crew.selection.limit(["local/b-model", "gone/c-model"])
        stage.app.speech.take("/scoped-models")
        await stage.wait(lambda: isinstance(stage.app.screen, ScopePicker) and stage.app.screen.shown)
        await compare(stage, "scoped-models", *BOTH, Look(40, 24))


async def test_tree_with_branches(screens):
    async with screens.open(*BRANCHED) as stage:
        crew = stage.app.link.crew
        await crew.branching.go(next(e["id"] for e in crew.history.list_entries() if "The ring." in json.dumps(e)))
        for message in OTHER_WAY:
            crew._main.session.append_message(message)
        stage.app.speech.take("/tree")
        await stage.wait(lambda: isinstance(stage.app.screen, TreePicker) and stage.app.screen.shown)
        await compare(stage, "tree", *BOTH, Look(40, 24))


async def test_summary_asked_about(screens):
    async with screens.open(*BRANCHED) as stage:
        stage.app.speech.take("/tree")
        await stage.wait(lambda: isinstance(stage.app.screen, TreePicker) and stage.app.screen.shown)
        await stage.press("up", "up", "enter")
        await stage.wait(lambda: getattr(stage.app.screen, "title_text", "") == "Summarise the branch you leave?")
        await compare(stage, "summary-question", *BOTH, Look(40, 24))


async def test_help(screens):
    async with screens.open() as stage:
        stage.app.speech.take("/help")
        await stage.wait(lambda: len(stage.app.screen_stack) > 1)
        await compare(stage, "help", *USUAL, Look(80, 12))


async def test_asking(screens):
    async with screens.open() as stage:
        stage.app.push_screen(TextPrompt("What shall the agent be called?", value="smith"))
        await compare(stage, "asking", *BOTH, Look(40, 24))


async def test_text_page(screens):
    async with screens.open() as stage:
        stage.app.push_screen(TextPage("Its prompt", "Make it well.\n\nSay where you looked.\n"))
        await compare(stage, "text-page", *BOTH, Look(40, 24))


async def test_trust(screens):
    async with screens.open() as stage:
        stage.app.push_screen(TrustScreen("/home/ada/project", (".pi/settings.json", ".pi/mcp.json", ".pi/agents")))
        await compare(stage, "trust", *USUAL, Look(80, 10))


async def test_without_colour(screens, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screens.show_runs(NESTED)
    async with screens.open(*TALK) as stage:
        await compare(stage, "no-colour", Look())


def test_no_screen_is_left_over():
    source = Path(__file__).read_text(encoding="utf-8")
    names = {path.name.rsplit("-", 2)[0] for path in FILES.glob("*.txt")}
    assert {name for name in names if f'"{name}"' not in source} == set()

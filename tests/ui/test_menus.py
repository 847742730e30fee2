import json
from functools import partial

import pytest
from textual.events import Key
from textual.widgets import OptionList

from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt
from tests.ui.menu_world import answer, enter, fill_page, open_menu, read_rows, read_title
from tests.ui.pilot_world import open_stage

open_here = partial(open_stage, approve=True)
SLOW = pytest.mark.slow
AGENT = "---\nname: smith\ndescription: Makes things\ntools: read\n---\n\nMake it well.\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    work = tmp_path / "work"
    (work / ".pi" / "agents").mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    return work


@pytest.fixture
def smith(place):
    path = place / ".pi" / "agents" / "smith.md"
    path.write_text(AGENT)
    return path


async def test_menu_has_its_sections(place, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage)
        await stage.wait(lambda: read_rows(stage))
        assert read_rows(stage) == ["Agent types (8)", "Scheduled jobs (0)", "Create new agent", "Settings"]
        await stage.press("left")
        await stage.wait(lambda: read_title(stage) == "MainScreen")


async def test_arrows_lead_in_and_back(smith, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "smith")
        await stage.wait(lambda: read_title(stage) == "smith")
        assert read_rows(stage) == ["Details", "Edit", "Disable", "Delete"]
        for title in ("Agent types (9)", "Agents", "MainScreen"):
            await stage.press("left")
            await stage.wait(lambda title=title: read_title(stage) == title)


async def test_builtin_agents_are_ejected(place, home, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "Explore")
        await stage.wait(lambda: read_title(stage) == "Explore")
        assert read_rows(stage) == ["Details", "Eject", "Disable", "explorer", "explore"]
        await enter(stage, "Eject", "For all projects")
        made = home / ".pi" / "agent" / "agents" / "Explore.md"
        await stage.wait(made.exists)
        await enter(stage, "Explore")
        await stage.wait(lambda: read_title(stage) == "Explore")
        assert read_rows(stage) == ["Details", "Edit", "Disable", "Reset to default", "Delete"]
        await enter(stage, "Reset to default", "Yes")
        await stage.wait(lambda: not made.exists())


async def test_variants_of_builtins_are_one_row(place, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types")
        await stage.wait(lambda: read_title(stage) == "Agent types (8)")
        assert [row for row in read_rows(stage) if row.lower().startswith(("expl", "plan"))] == ["Explore", "Plan"]
        await enter(stage, "Explore", "explore")
        await stage.wait(lambda: read_title(stage) == "explore")
        # `retinue agents eject explore` would copy `Explore`
        assert read_rows(stage) == ["Details"]
        await stage.press("left")
        await stage.wait(lambda: read_title(stage) == "Explore")
        await enter(stage, "explorer")
        await stage.wait(lambda: read_title(stage) == "explorer")
        assert read_rows(stage) == ["Details", "Eject", "Disable"]


async def test_agents_are_switched_off_and_on(smith, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "smith", "Disable")
        await stage.wait(lambda: "enabled: false" in smith.read_text())
        await enter(stage, "smith")
        await stage.wait(lambda: read_title(stage) == "smith")
        assert read_rows(stage) == ["Details", "Enable", "Edit", "Delete"]
        await enter(stage, "Enable")
        await stage.wait(lambda: smith.read_text() == AGENT)


async def test_deleting_asks_first(smith, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "smith", "Delete", "No")
        await stage.wait(lambda: read_title(stage) == "smith")
        assert smith.exists()
        await enter(stage, "Delete", "Yes")
        await stage.wait(lambda: not smith.exists())


async def test_page_replaces_a_missing_editor(smith, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "smith", "Edit")
        await fill_page(stage, "no frontmatter at all")
        await fill_page(stage, AGENT.replace("well", "quickly"))
        await stage.wait(lambda: smith.read_text() == AGENT.replace("well", "quickly"))


async def test_changed_page_is_left_twice(smith, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "smith", "Edit")
        await stage.wait(lambda: read_title(stage) == "TextPage")
        await stage.press("x", "escape")
        assert read_title(stage) == "TextPage"
        await stage.press("escape")
        await stage.wait(lambda: read_title(stage) == "smith")
        assert smith.read_text() == AGENT


async def test_agent_is_made_step_by_step(place, home, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Create new agent", "For all projects", "Step by step")
        await answer(stage, "../evil")
        await answer(stage, "smith")
        await answer(stage, "Makes: things")
        await enter(stage, "Read-only", "Same as the caller", "high")
        await fill_page(stage, "Make it well.")
        made = home / ".pi" / "agent" / "agents" / "smith.md"
        await stage.wait(made.exists)
        assert made.read_text() == (
            '---\nname: smith\ndescription: "Makes: things"\ntools: read, grep, find, ls\nthinking: high\n---\n\n'
            "Make it well.\n"
        )


async def test_written_agent_is_shown_before_saving(place, home, tmp_path):
    reply = {"text": f"Here it is:\n\n```markdown\n{AGENT}```\nGood luck!"}
    async with open_here(tmp_path, reply) as stage:
        await open_menu(stage, "Create new agent", "For all projects", "Written by an agent")
        await answer(stage, "smith")
        await fill_page(stage, "it makes things")
        made = home / ".pi" / "agent" / "agents" / "smith.md"
        await stage.wait(lambda: read_title(stage) == "TextPage")
        assert not made.exists()
        await stage.press("ctrl+s")
        await stage.wait(made.exists)
        assert made.read_text() == AGENT
        assert [(run.agent, run.description) for run in stage.app.link.crew.session_runs.runs] == [
            ("general-purpose", "write agent smith")
        ]


async def test_setting_counts_at_once(place, home, tmp_path):
    file = place / ".pi" / "subagents.json"
    file.write_text('{"graceTurns": 2, "strange": 1}')
    async with open_here(tmp_path, surfaces=("fleet",), tools=None) as stage:
        await open_menu(stage, "Settings", "maxConcurrent")
        await answer(stage, "7")
        await stage.wait(lambda: stage.app.link.crew.crew_settings.max_concurrent == 7)
        assert json.loads(file.read_text()) == {"graceTurns": 2, "strange": 1, "maxConcurrent": 7}
        assert not (home / ".pi" / "agent" / "subagents.json").exists()


async def test_users_file_is_chosen_with_a_key(place, home, tmp_path):
    file, users = place / ".pi" / "subagents.json", home / ".pi" / "agent" / "subagents.json"
    file.write_text('{"graceTurns": 2}')
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Settings")
        await stage.press("tab")
        await enter(stage, "graceTurns", "Another value")
        await answer(stage, "9")
        await stage.wait(users.exists)
        await stage.wait(lambda: read_title(stage) == "Settings")
        assert (json.loads(file.read_text()), json.loads(users.read_text())) == ({"graceTurns": 2}, {"graceTurns": 9})
        assert "for all projects" in str(stage.app.screen.query_one("#about").render())
        assert any("overrides your file" in each.message for each in stage.app._notifications)


async def test_untrusted_settings_file_is_told(place, home, tmp_path):
    (place / ".pi" / "subagents.json").write_text("{}")
    async with open_stage(tmp_path, approve=False) as stage:
        await open_menu(stage, "Settings")
        await stage.press("tab")
        about = str(stage.app.screen.query_one("#about").render())
        assert about.startswith("The settings file of this folder is not trusted. Changes are saved for all projects")


async def test_exact_match_comes_first(place, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Settings")
        for name in ("maxConcurrent", "enabled", "ENABLED"):
            stage.app.screen.query_one("Input").value = name
            await stage.wait(lambda name=name: stage.app.screen.lit.label.lower() == name.lower())


@pytest.mark.parametrize("chosen", ["For this folder", "For all folders"])
async def test_undecided_folder_asks_where(place, home, tmp_path, chosen):
    (place / ".pi" / "agents").rmdir()
    async with open_stage(tmp_path) as stage:
        await open_menu(stage, "Settings", "maxConcurrent")
        await answer(stage, "7")
        await enter(stage, chosen)
        await stage.wait(lambda: stage.app.link.crew.crew_settings.max_concurrent == 7)
        await stage.wait(lambda: read_title(stage) == "Settings")
        files = [place / ".pi" / "subagents.json", home / ".pi" / "agent" / "subagents.json"]
        assert [file.exists() for file in files] == [chosen == "For this folder", chosen == "For all folders"]


async def test_bad_setting_changes_nothing(place, home, tmp_path):
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Settings", "graceTurns")
        await answer(stage, "-3")
        await stage.wait(lambda: read_title(stage) == "Settings")
        assert not (home / ".pi" / "agent" / "subagents.json").exists()
        await enter(stage, "approvals", "ask")
        await stage.wait(lambda: read_title(stage) == "Settings")
        await stage.wait((home / ".pi" / "agent" / "subagents.json").exists)
        assert json.loads((home / ".pi" / "agent" / "subagents.json").read_text()) == {"approvals": "ask"}


async def test_jobs_are_shown_and_cancelled(place, tmp_path):
    job = {
        "id": "abcdefghij",
        "name": "nightly",
        "schedule": "0 0 3 * * *",
        "scheduleType": "cron",
        "subagent_type": "Explore",
        "prompt": "look",
        "enabled": True,
        "nextRun": "2999-01-01T00:00:00.000Z",
    }
    folder = place / ".pi" / "subagent-schedules"
    folder.mkdir(parents=True)
    twin, other = {**job, "id": "klmnopqrst"}, {**job, "id": "uvwxyzabcd"}
    (folder / "another.json").write_text(json.dumps({"version": 1, "jobs": [other]}))
    async with open_here(tmp_path) as stage:
        file = folder / f"{stage.app.link.crew.header['id']}.json"
        file.write_text(json.dumps({"version": 1, "jobs": [job, twin]}))
        await open_menu(stage, "Scheduled jobs (2)")
        await stage.wait(lambda: read_rows(stage) == ["nightly", "nightly"])
        await stage.press("down", "right")
        await enter(stage, "Cancel this job")
        await stage.wait(lambda: read_rows(stage) == ["nightly"])
        assert [each["id"] for each in json.loads(file.read_text())["jobs"]] == ["abcdefghij"]


async def test_runs_are_looked_at(place, tmp_path):
    async with open_here(tmp_path, {"text": "found"}) as stage:
        run = await stage.app.link.crew.spawn("Explore", "look around")
        await run.wait()
        await open_menu(stage, "Running agents (1) — 0 running, 1 done", "look around")
        await stage.wait(lambda: read_title(stage) == "RunViewer")
        await stage.press("escape")
        await stage.wait(lambda: read_title(stage) == "Running agents (1) — 0 running, 1 done")


@pytest.mark.parametrize("size", [(20, 5), pytest.param((24, 12), marks=SLOW), pytest.param((300, 60), marks=SLOW)])
async def test_menus_fit_any_size(smith, tmp_path, size):
    async with open_here(tmp_path, size=size) as stage:
        await open_menu(stage, "Agent types", "smith", "Details")
        await stage.wait(lambda: read_title(stage) == "Panel")
        for key, title in (("escape", "smith"), ("left", "Agent types (9)"), ("left", "Agents")):
            await stage.press(key)
            await stage.wait(lambda title=title: read_title(stage) == title)
        await enter(stage, "Settings")
        assert read_title(stage) == "Settings"


async def test_hostile_agents_are_shown_plainly(place, tmp_path):
    text = AGENT.replace("Makes things", '"[bold red]x[/] \\e[31m \\e]8;;http://e\\a"').replace("smith", "evil")
    (place / ".pi" / "agents" / "evil.md").write_text(text)
    async with open_here(tmp_path) as stage:
        await open_menu(stage, "Agent types", "evil")
        await stage.wait(lambda: read_title(stage) == "evil")
        shown = stage.app.export_screenshot()
        assert "[bold" in shown and "\x1b" not in shown
        await enter(stage, "Details")
        assert "\x1b" not in stage.app.export_screenshot()


@pytest.mark.parametrize("size", [(20, 5), *(pytest.param(each, marks=SLOW) for each in [(40, 9), (60, 14), (80, 24)])])
async def test_lit_row_stays_in_sight(place, tmp_path, size):
    async with open_here(tmp_path, size=size) as stage:
        await open_menu(stage, "Settings")
        await stage.press(*["down"] * 25)
        screen = stage.app.screen
        rows = screen.query_one(OptionList)
        label = screen.shown[rows.highlighted].label[:12]
        assert (rows.highlighted, rows.region.bottom <= screen.size.height) == (25, True)
        assert label in stage.app.export_screenshot().replace("&#160;", " ")


async def test_keys_faster_than_a_list_count(tmp_path, place):
    async with open_here(tmp_path) as stage:
        chosen = []
        picker = Picker("Which", [PickerRow(name, name) for name in "abc"])
        stage.app.push_screen(picker, chosen.append)
        picker.action_move(1)
        picker.action_take()
        await stage.wait(lambda: chosen)
        assert chosen == ["b"]


@pytest.mark.parametrize("done", ["enter", "ctrl+s"])
async def test_keys_of_one_burst_keep_their_order(tmp_path, place, done):
    async with open_here(tmp_path) as stage:
        chosen = []
        stage.app.push_screen(TextPrompt("How many", value="100"), chosen.append)
        await stage.wait(lambda: stage.app.focused is not None and stage.app.focused.id == "answer")
        for key in ("end", "ctrl+u", *"61000", "backspace", "left", "left", "backspace", "0", done):
            stage.app.post_message(Key(key, key if len(key) == 1 else None))
        await stage.wait(lambda: chosen)
        assert chosen == ["6000"]


async def test_list_left_at_once_is_gone(tmp_path, place):
    async with open_here(tmp_path) as stage:
        for _ in range(5):
            chosen = []
            stage.app.push_screen(Picker("Which", [PickerRow("a", "a")]), chosen.append)
            await stage.press("escape")
            await stage.wait(lambda chosen=chosen: chosen == [None])
        await stage.pilot.resize_terminal(40, 10)
        assert len(stage.app.screen_stack) == 1

import pytest
from textual.widgets import Static

from retinue.features.activity import Activity, find_log
from tests.ui.pilot_world import open_stage


def read_text(stage):
    return str(stage.app.screen.query_one("#text", Static).render())


@pytest.fixture
def log(tmp_path, home, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = find_log(home / ".pi" / "agent" / "retinue", tmp_path)
    made.append(Activity(1, "read", "success", 5))
    return made


@pytest.mark.spec("devkit:65")
@pytest.mark.parametrize(
    ("words", "title", "line"),
    [
        ("agents", "Toolkit Agents (11)", "Available Agents (11)"),
        ("logs", "Toolkit Logs", "Recent Activity (last 1)"),
        ("modules", "Toolkit Modules", "devkit-pi modules"),
        ("lsp", "Toolkit LSP", "hook.mode: agent_end"),
        ("doctor", "Toolkit Doctor", "[PYTHON]"),
        ("whatever", "Toolkit", "Usage: /toolkit COMMAND"),
    ],
)
async def test_reports_are_panels(log, tmp_path, words, title, line):
    async with open_stage(tmp_path) as stage:
        stage.app.speech.take(f"/toolkit {words}")
        await stage.wait(lambda: stage.app.screen.query("Panel #text"))
        shown = str(stage.app.screen.query_one("#title", Static).render())
        assert (shown, line in read_text(stage).splitlines()) == (title, True)


async def test_activity_is_refreshed_and_cleared(log, tmp_path):
    async with open_stage(tmp_path) as stage:
        stage.app.speech.take("/toolkit activity")
        await stage.wait(lambda: stage.app.screen.query("ActivityPanel #text"))
        await stage.wait(lambda: "read " in read_text(stage))
        log.append(Activity(2, "bash", "error", 7))
        await stage.press("r")
        await stage.wait(lambda: "bash " in read_text(stage))
        await stage.press("s")
        await stage.wait(lambda: read_text(stage).startswith("(no recent activity)"))
        await stage.press("c")
        await stage.wait(lambda: not log.path.exists())
        await stage.press("escape")
        await stage.wait(lambda: type(stage.app.screen).__name__ == "MainScreen")


async def test_toolkit_can_be_switched_off(tmp_path, agent_dir, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (agent_dir / "subagents.json").write_text('{"commands": {"enabled": false}}')
    async with open_stage(tmp_path) as stage:
        assert "toolkit" not in [command.name for command in stage.app.commands.list()]
        await stage.write("/toolk")
        assert not stage.app.screen.query_one("CompletionPopup").is_open
        await stage.write("it help")
        await stage.press("enter")
        await stage.wait(lambda: stage.notes)
        assert len(stage.app.screen_stack) == 1 and "commands.enabled" in stage.notes[-1]

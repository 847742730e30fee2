from textual.widgets import Static

from tests.flows.merge_world import git, make_repository
from tests.ui.pilot_world import open_stage


def read_text(stage):
    return str(stage.app.screen.query_one("#text", Static).render())


async def test_panel_lands_branches(tmp_path, agent_dir, monkeypatch):
    work = tmp_path / "work"
    make_repository(work, {"pi-agent-good": {"a.txt": "x\n"}, "pi-agent-bad": {"broken": "x\n"}}, {"a.txt": "a\n"})
    (agent_dir / "subagents.json").write_text('{"landing": {"verify": "! test -e broken"}}')
    monkeypatch.chdir(work)
    async with open_stage(work) as stage:
        stage.app.speech.take("/land")
        await stage.wait(lambda: stage.app.screen.query("LandingPanel #text"))
        await stage.wait(lambda: "· pi-agent-good  waiting\n· pi-agent-bad  waiting" in read_text(stage))
        await stage.press("l")
        await stage.wait(lambda: "✓ pi-agent-good  landed" in read_text(stage))
        await stage.wait(lambda: "✕ pi-agent-bad  behind: `! test -e broken` fails" in read_text(stage))
        assert git(work, "show", "main:a.txt") == "x"
        await stage.press("escape")
        await stage.wait(lambda: type(stage.app.screen).__name__ == "MainScreen")

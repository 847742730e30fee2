import json

import pytest

from tests.ui.menu_world import enter, read_rows, read_title
from tests.ui.pilot_world import open_stage

SERVER = {"command": "python", "args": ["-m", "nothing"]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    work = tmp_path / "work"
    (work / ".pi").mkdir(parents=True)
    (work / ".pi" / "mcp.json").write_text(json.dumps({"mcpServers": {"files": SERVER}}))
    monkeypatch.chdir(work)
    return work


async def test_server_is_approved_and_taken_back(place, home, tmp_path):
    kept = home / ".pi" / "agent" / "retinue" / "trust.json"
    async with open_stage(tmp_path, approve=True) as stage:
        stage.app.speech.take("/mcp")
        await enter(stage, "files", "Approve it as it is")
        await stage.wait(lambda: kept.exists() and "files" in kept.read_text())
        await enter(stage, "files")
        await stage.wait(lambda: read_rows(stage) == ["Back", "Revoke the approval"])
        await enter(stage, "Revoke the approval")
        await stage.wait(lambda: "files" not in kept.read_text())
        await stage.press("left")
        await stage.wait(lambda: read_title(stage) == "MainScreen")


async def test_shown_entry_is_approved(place, home, tmp_path):
    kept = home / ".pi" / "agent" / "retinue" / "trust.json"
    async with open_stage(tmp_path, approve=True) as stage:
        stage.app.speech.take("/mcp")
        await enter(stage, "files")
        await stage.wait(lambda: read_rows(stage) == ["Back", "Approve it as it is"])
        other = {"mcpServers": {"files": {**SERVER, "args": ["-m", "other"]}}}
        (place / ".pi" / "mcp.json").write_text(json.dumps(other))
        await enter(stage, "Approve it as it is")
        await stage.wait(lambda: kept.exists() and "files" in kept.read_text())
        assert ("nothing" in kept.read_text(), "other" in kept.read_text()) == (True, False)
        await stage.wait(lambda: read_title(stage) == "MCP servers (1)")
        assert stage.app.screen.shown[0].mark == "!"


async def test_hooks_are_listed(place, tmp_path):
    (place / ".codingcode").mkdir()
    hook = "hooks: [{name: guard, point: agent.turn.start, type: observer, command: 'true', enabled: true}]\n"
    (place / ".codingcode" / "hooks.yaml").write_text(hook)
    async with open_stage(tmp_path, approve=True) as stage:
        stage.app.speech.take("/hooks")
        await stage.wait(lambda: read_title(stage) == "Hooks (1)")
        await enter(stage, "guard")
        assert read_rows(stage) == ["Back", "Approve it as it is"]


async def test_nothing_configured_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_stage(tmp_path) as stage:
        stage.app.speech.take("/hooks")
        await stage.wait(lambda: any("no Hooks" in note.message for note in stage.app._notifications))
        await stage.wait(lambda: read_title(stage) == "MainScreen")

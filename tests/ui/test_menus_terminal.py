import json

import pytest

AGENT = "---\nname: smith\ndescription: Makes things\n---\n\nMake it well.\n"


@pytest.fixture
def smith(world):
    path = world.agent_dir / "agents" / "smith.md"
    path.parent.mkdir(parents=True)
    path.write_text(AGENT)
    return path


def test_own_editor_gets_the_terminal(world, smith):
    script = world.home / "editor.sh"
    script.write_text('printf "EDITOR HAS IT"; read answer; sed -i "s/well/$answer/" "$2"\n')
    world.environment["EDITOR"] = f"sh {script} --wait"
    with world.tmux() as tmux:
        tmux.say("/agents")
        tmux.see("Create new agent")
        tmux.keys("Right")
        tmux.see("◦ global")
        tmux.say("smith")
        tmux.see("fields, tools")
        tmux.keys("Down", "Right")
        assert "Agent types" not in tmux.see("EDITOR HAS IT")
        tmux.say("quickly")
        tmux.see("◦ global")
        tmux.keys("Left")
        tmux.see("Create new agent")
        tmux.keys("Left")
        tmux.miss("Create new agent")
        tmux.keys("C-d")
        assert tmux.end() == (0, True, "0 1 0")
    assert smith.read_text() == AGENT.replace("well", "quickly")


def test_similar_builtins_are_one_row(world):
    with world.tmux(columns=140) as tmux:
        tmux.say("/agents")
        tmux.see("Agent types (8)")
        tmux.keys("Right")
        shown = tmux.see("◦ global")
        assert [line for line in shown.splitlines() if "xplore" in line] == [
            line for line in shown.splitlines() if "Explore          also explorer, explore · Fast read-only" in line
        ]
        tmux.say("explorer")
        assert "builtin · pi · on fleet, subagent, dispatch" in tmux.see("on dispatch · tools: read_file")
        tmux.say("explorer")
        assert "tools: read, grep, find, ls, lsp" in tmux.see("Read-only codebase navigator")


def test_missing_editor_is_told(world, smith):
    world.environment["EDITOR"] = "no-such-editor"
    with world.tmux() as tmux:
        tmux.say("/agents")
        tmux.see("Create new agent")
        tmux.keys("Right")
        tmux.see("◦ global")
        tmux.say("smith")
        tmux.see("fields, tools")
        tmux.keys("Down", "Right")
        tmux.see("set EDITOR to an installed editor")
        tmux.keys("C-c")
    assert smith.read_text() == AGENT


def test_settings_menu_writes_the_file_it_shows(world):
    users = world.agent_dir / "subagents.json"
    with world.tmux("--approve") as tmux:
        tmux.say("/settings")
        shown = tmux.see("Changes are saved for this project")
        assert shown.index("notifications") < shown.index("maxConcurrent")
        tmux.keys(*"maxConcurrent", "Enter")  # not maxConcurrentScheduled
        tmux.see("same time. Accepted")
        tmux.keys("BSpace", "7", "Enter")
        tmux.see("maxConcurrent is 7, saved in")
        tmux.keys("Tab")
        tmux.see("Changes are saved for all projects")
        tmux.keys(*"approvals", "Enter")
        tmux.see("Current value: never")
        tmux.keys(*"ask", "Enter")
        tmux.see("approvals is ask, saved in")
    assert json.loads((world.work / ".pi" / "subagents.json").read_text()) == {"maxConcurrent": 7}
    assert json.loads(users.read_text()) == {"approvals": "ask"}

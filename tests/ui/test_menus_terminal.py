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

"""What a new user tries first, in a real terminal: theme, footer, history search, commands, settings, agents."""

import json
import re


def find_background(tmux):
    """The colour behind the first line of the screen."""
    found = re.search(r"48;2;(\d+;\d+;\d+)", tmux.colours)
    return found and found[1]


def test_theme_follows_the_terminal(world):
    world.environment["COLORTERM"] = "truecolor"
    with world.tmux(style="bg=#ffffff") as tmux:
        tmux.wait(lambda screen: find_background(tmux) == "244;244;248", "the theme is not light")
        tmux.keys("x")
        assert "rgb:" not in tmux.see("x") and "11;" not in tmux.screen
        tmux.keys("C-u")
        tmux.say("/theme retinue-dark")
        tmux.wait(lambda screen: find_background(tmux) == "22;22;30", "the theme is not dark")
    assert json.loads((world.agent_dir / "settings.json").read_text())["theme"] == "dark"

"""What a new user tries first, in a real terminal: theme, footer, history search, commands, settings, agents."""

import json
import os
import re
import subprocess


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


def make_checkout(folder):
    """A repository with a commit, a changed file and one that git does not know."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (folder / "kept.txt").write_text("one\n")
    for words in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    (folder / "kept.txt").write_text("one\nearlier\n")
    (folder / "loose.txt").write_text("loose\n")


def test_commands_show_the_state(mocked):
    used = {"input": 1_000, "output": 100, "cacheRead": 3_000}
    written = {"name": "write", "arguments": {"path": "AGENTS.md", "content": "Read the README."}}
    with mocked({"calls": [written], "usage": used}, {"text": "Written.", "usage": used}) as world:
        make_checkout(world.work)
        with world.tmux(rows=40) as tmux:
            tmux.see(" (trunk) ")
            tmux.say("!git checkout -qb other; echo later >>kept.txt; echo changed >loose.txt")
            tmux.see(" (other) ")
            tmux.say("/init be brief")
            tmux.see("Written.")
            tmux.see("cache 75%")
            tmux.say("/diff")
            screen = tmux.see("+later")
            assert "Changes since the first checkpoint of this session" in screen and "+Read the README." in screen
            assert "-loose" in screen and "+changed" in screen and "+earlier" not in screen
            tmux.keys("Escape")
            tmux.miss("+later")
            tmux.say("/context")
            screen = tmux.see("░ free")
            for part in ("system prompt", "tools", "context files", "skills", "messages", "tool results"):
                assert part in screen
            tmux.keys("Escape")
            tmux.miss("░ free")
            tmux.say("/clear")
            tmux.miss("Written.")
            tmux.see("What should I work on?")


def test_first_edit_waits_for_the_start(mocked):
    written = {"name": "write", "arguments": {"path": "kept.txt", "content": "rewritten"}}
    with mocked({"calls": [written]}, {"text": "Written."}) as world:
        make_checkout(world.work)
        pipe = world.work / "slow" / ".gitignore"
        pipe.parent.mkdir()
        os.mkfifo(pipe)  # git waits for what is written to it before it lists the files for the checkpoint
        with world.tmux() as tmux:
            tmux.say("rewrite it")
            tmux.wait(lambda screen: world.server.requests, "there is no request")
            writer = os.open(pipe, os.O_RDWR)
            pipe.unlink()
            os.close(writer)
            tmux.see("Written.")
            tmux.say("/diff")
            screen = tmux.see("+rewritten")
            assert "Changes since the first checkpoint" in screen and "-earlier" in screen


def test_init_without_a_language_model_says_what_it_found(world):
    (world.work / "README.md").write_text("# Kite\n\nKite flies kites.\n")
    with world.tmux(rows=60) as tmux:
        tmux.say("/init")
        tmux.see("offline/rules cannot write files")
        tmux.see("Kite flies kites")
    assert not (world.work / "AGENTS.md").exists()


def test_history_is_searched(world):
    with world.tmux() as tmux:
        for text in ("!echo apple pie", "!echo apple tart", "!echo pear"):
            tmux.say(text)
            tmux.see(f"\n ▌ {text.removeprefix('!echo ')}")
        tmux.keys("C-r")
        tmux.see("history:")
        tmux.keys("app")
        tmux.see("│ !echo apple tart")
        tmux.keys("C-r")
        tmux.see("│ !echo apple pie")
        tmux.keys("Escape")
        tmux.miss("│ !echo apple pie")
        tmux.keys("C-r", "tart", "Enter")
        tmux.see("│ !echo apple tart")
        tmux.miss("history:")

import os
import sys
from pathlib import Path

from retinue.testing import run_cli
from tests.terminal import open_terminal

BIN = Path(sys.executable).parent
SHELL = ["bash", "--noprofile", "--norc", "-i"]


def test_commands_in_a_shell(world):
    environment = {**world.environment, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PS1": "ready> "}
    with open_terminal(SHELL, world.work, environment) as terminal:
        terminal.wait_for("ready> ")
        for line, wanted in (
            ("retinue agnets; echo status $?\r", "retinue: unknown command 'agnets'; did you mean retinue agents?"),
            ("", "status 2"),
            ('eval "$(retinue completion bash)"; echo learnt $((40 + 2))\r', "learnt 42"),
            ("retinue age\tn\t\r", "Where (user: all projects"),
            ("\r", "Name ("),
            ("finder\r", "When should it be used"),
            ("Finds things\r", "Tools"),
            ("\r", "Read-only"),
            ("\r", "Model"),
            ("\r", "Instructions"),
            ("Find it.\r.\r", "finder.md"),
        ):
            terminal.type(line)
            terminal.wait_for(wanted)
    assert "Find it." in (world.agent_dir / "agents" / "finder.md").read_text()


def test_resume_flag_opens_the_list(mocked):
    with mocked({"text": "first answer"}) as world:
        run_cli([*world.model, "-p", "find the zebra"], world.work, home=world.home)
        with world.tmux("--resume") as tmux:
            assert "find the zebra" in tmux.see("Resume a session")
            tmux.keys("Enter")
            tmux.see("first answer")

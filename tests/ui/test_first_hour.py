"""The first hour of a person who has just installed retinue, in a real terminal."""

import re
import time

import pytest

from retinue.testing import MockServer
from retinue.ui.widgets.question import WAIT_LIMIT_S
from tests.ui.hour_world import RIGHT_LINE, ROOT, Album, Hour, build_script

KEY, WRONG = "sk-good-0123456789", "sk-wrong-9876543210"


@pytest.fixture
def hour(tmp_path):
    with MockServer.in_thread(build_script(), key=KEY) as server:
        yield Hour(tmp_path, server.url)


def test_readme_installs_the_command(hour):
    line = re.search(r"^make demo && export PATH=\S+", (ROOT / "README.md").read_text(), re.MULTILINE)[0]
    with hour.shell(100, 30) as shell:
        shell.keys(f"cd '{ROOT}' && PATH=/usr/bin:/bin && {line} && clear && cd && retinue --version", "Enter")
        shell.see("retinue 0.", 40)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (140, 40)])
def test_first_hour(hour, columns, rows):
    with hour.shell(columns, rows) as shell:
        album = Album(shell, columns, rows)
        start_first(shell, album)
        watch_agents(shell, album)
        steer(hour, shell, album)
        answer_questions(hour, shell, album)
        stop(shell, album)
        leave(hour, shell, album)
        resume_and_export(hour, shell, album)
    assert hour.wait_until_alone() == []


def start_first(shell, album):
    shell.say("retinue")
    shell.see("3  Try it offline")
    album.keep("1-welcome", picture=True)
    for key, answer in ((WRONG, "does not accept this key"), (KEY, "the key works and is stored")):
        shell.say("/login anthropic")
        shell.see("API key for anthropic")
        shell.keys(key, "Enter")
        shell.see(answer)
    shell.miss("asking anthropic")
    album.keep("2-login")
    shell.say("/approvals ask")
    shell.see("approvals: ask anthropic/")


def watch_agents(shell, album):
    shell.say("Why are the bills a cent too low?")
    shell.see("They are at work")
    shell.see("find the callers")
    shell.see("2 queued")
    album.keep("3-agents", picture=True)


def steer(hour, shell, album):
    shell.keys("Down", "Down", "Enter")
    shell.see("x x: stop")
    shell.keys("Enter")
    shell.see("message to this agent")
    shell.say("only bill.py matters")
    shell.see("↳ next: only bill.py")
    album.keep("4-steered", picture=True)
    hour.finish("callers")
    shell.see("Only bill.py calls total.")
    shell.keys("Escape")
    shell.see("correct the rounding")


def answer_questions(hour, shell, album):
    shell.see("Allow edit?")
    album.keep("5-approval", picture=True)
    press(shell, "y")
    shell.see("Allow bash?")
    shell.see("rm -rf build")
    assert RIGHT_LINE in (hour.work / "cart.py").read_text()
    press(shell, "r")
    shell.see("enter: deny with this reason")
    shell.say("I still need it")
    shell.see("I left the build folder")
    album.keep("6-answered")


def press(shell, key):
    """Answer a question, after the pause in which letters are no answers."""
    time.sleep(WAIT_LIMIT_S + 0.1)
    shell.keys(key)


def stop(shell, album):
    shell.keys("Down", "Down", "Enter")
    shell.see("The job is: tests")
    shell.keys("x", "x")
    shell.see("stopped")
    shell.keys("Escape")
    shell.miss("The job is")
    album.keep("7-stopped", picture=True)


def leave(hour, shell, album):
    shell.keys("C-d")
    shell.see("2 agents are working")
    album.keep("8-leaving")
    shell.keys("Down", "Enter")
    shell.see("waiting for 2 agents to exit")
    hour.finish("sums")
    shell.see("waiting for 1 agent to exit")
    hour.finish("prices")
    shell.see("To resume this session: retinue --session")
    album.keep("9-left")


def resume_and_export(hour, shell, album):
    shell.keys("clear; retinue --resume", "Enter")
    shell.see("Resume a session")
    album.keep("10-sessions")
    shell.keys("Enter")
    shell.see("It rounds now.")
    shell.see("6 finished")
    shell.say("And now?")
    shell.see("Now the bills are right.")
    shell.say("/export hour.html")
    shell.see("exported to hour.html")
    album.keep("11-exported", picture=True)
    shell.keys("C-d")
    shell.see("To resume this session: retinue --session")
    page = (hour.work / "hour.html").read_text()
    assert "6 runs" in page and "Only <code>bill.py</code>" in page and KEY not in page

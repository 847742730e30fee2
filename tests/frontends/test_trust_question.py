import json
import os
import pty
import subprocess
import sys

import pytest

from retinue.testing import process

AGENT = "---\nname: helper\ndescription: from the clone\ntools: read\n---\nHelp.\n"


@pytest.fixture
def clone(place):
    folder = place.work / ".pi" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.md").write_text(AGENT)
    return place


def ask(place, answers, *arguments):
    """Run an agent of the folder's own with a terminal at both ends; its status, and what the terminal showed."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "HOME": str(place.home), "PI_CODING_AGENT_DIR": str(place.agent_dir)}
    model = place.script({"text": "done"})
    command = [sys.executable, "-m", "retinue", "run", "--model", model, *arguments, "helper", "go"]
    with process.start(
        command, stdin=follower, stdout=subprocess.PIPE, stderr=follower, cwd=place.work, env=environment
    ) as program:
        os.write(leader, answers.encode())
        output, _ = program.communicate(timeout=30)
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:
        pass
    os.close(leader)
    return program.returncode, output.decode(), shown.decode()


def saved(place):
    path = place.agent_dir / "trust.json"
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("answer", "status", "remembered"),
    [("y\n", 0, None), ("a\n", 0, True), ("n\n", 2, None), ("\n", 2, None), ("v\n", 2, False), ("x\nx\nx\n", 2, None)],
)
def test_answer_decides_and_may_be_kept(clone, answer, status, remembered):
    code, output, shown = ask(clone, answer)
    assert (code, output) == (status, "done\n" if status == 0 else "")
    assert "has its own configuration: .pi/agents" in shown
    assert saved(clone).get(str(clone.work.resolve())) is remembered


@pytest.mark.parametrize("flag", ["--approve", "--no-approve"])
def test_flags_are_not_asked_again(clone, flag):
    _, _, shown = ask(clone, "", flag)
    assert "Use it?" not in shown


def test_decided_folder_is_not_asked_again(clone):
    clone.run("trust", "--yes")
    code, output, shown = ask(clone, "")
    assert (code, output, "Use it?" in shown) == (0, "done\n", False)


@pytest.mark.attack("A13")
def test_nobody_there_means_no(clone):
    done = clone.run("run", "--model", clone.script({"text": "done"}), "helper", "go")
    assert (done.status, "Use it?" in done.stderr, "is not trusted" in done.stderr) == (2, False, True)

"""Branches of runs that were executed on workers: they land, a conflict goes back to one, and they are undone."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.flows.worktree_world import git

pytestmark = pytest.mark.timeout(120)
CHECK = "! grep -q '<<<<<<<' README.md"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def bash(command):
    return [{"name": "bash", "arguments": {"command": command}}]


def start(world, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "retinue", *words],
        env={**os.environ, "RETINUE_DATABASE": world.database},
        cwd=world.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_agents(world, *commands, solve):
    """Let a session's agents run one command each on workers; returns their branches, the oldest first."""
    asked = {"description": "a file", "subagent_type": "general-purpose"}
    calls = [{"name": "Agent", "arguments": {**asked, "prompt": f"Do {each}."}} for each in range(len(commands))]
    replies = [to("^Start", calls=calls), to("^Start", text="Waiting.")]
    for number, command in enumerate(commands):
        replies += [to(f"^Do {number}", calls=bash(command)), to(f"^Do {number}", text="Made it.")]
    replies += [to("could not land", **world.act(1, after=solve)), to("could not land", text="Solved.")]
    world.settings["landing"] = {"verify": CHECK}
    world.play(*replies, *[to("task-notification", text="I was told.")] * len(commands))
    world.start_worker()
    _, errors = start(world, "-p", "--model", "mock/mock-1", "Start.").communicate(timeout=60)
    names = git(world.project, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/pi-agent-*").split()
    assert len(names) == len(commands), errors
    assert world.ask("SELECT count(*), count(finished) FROM retinue.runs") == [(len(commands), len(commands))]
    said = {git(world.project, "diff", "--name-only", "main", name): name for name in names}
    return [said[files] for files in sorted(said)]


def land(world, *words):
    said, errors = start(world, "land", "--json", *words).communicate(timeout=90)
    assert said, errors
    return json.loads(said)


def read_attempts(world):
    return world.ask("SELECT attempt FROM retinue.runs WHERE attempt > 1 AND finished IS NOT NULL AND epoch > 0")


def test_branches_of_workers_land(world):
    branches = start_agents(world, "echo 1 > one.txt", "echo 2 > two.txt", "echo '<<<<<<<' > README.md", solve="true")
    by_file = [git(world.project, "diff", "--name-only", "main", name) for name in branches]
    assert by_file == ["README.md", "one.txt", "two.txt"]
    report = land(world, *branches[1:])
    assert (report["landed"], report["refused"]) == (branches[1:], [])
    assert [(world.project / name).read_text() for name in ("one.txt", "two.txt")] == ["1\n", "2\n"]
    assert len(git(world.project, "rev-list", "--merges", "main").split()) == 2
    assert git(world.project, "status", "--porcelain") == ""


CLASH = "echo one > README.md; echo 1 > one.txt", "echo two > README.md; echo 2 > two.txt"
SOLVE = "grep -c '^<<<<<<< ' README.md && printf 'one\\ntwo\\n' > README.md"


def test_conflict_goes_back_to_worker(world):
    branches = start_agents(world, *CLASH, solve=SOLVE)
    report = land(world, *branches)
    assert (report["landed"], report["refused"]) == (branches, [])
    assert (world.project / "README.md").read_text() == "one\ntwo\n"
    assert (read_attempts(world), len(world.effects)) == ([(2,)], 1)
    # The author worked on a merge of its branch with main.
    assert len(git(world.project, "rev-list", "--merges", "main").split()) == 3
    assert git(world.project, "for-each-ref", "refs/retinue/sent", "refs/retinue/landing", "refs/pi-agent") == ""


@pytest.mark.parametrize("waits", [False, True], ids=["it-works", "it-has-ended"])
def test_killed_queue_finds_its_author(world, waits):
    gate = world.shared / "gate"
    branches = start_agents(world, *CLASH, solve=f"until test -e {gate}; do sleep 0.1; done; {SOLVE}")
    queue = start(world, "land", *branches)
    world.wait_until(lambda: world.effects, "the author works")
    queue.send_signal(signal.SIGKILL)
    queue.communicate(timeout=20)
    gate.touch()
    if waits:
        world.wait_until(lambda: read_attempts(world), "the author is done")
    report = land(world)
    assert (sorted(report["landed"]), report["refused"]) == (sorted(branches), [])
    assert (read_attempts(world), len(world.effects)) == ([(2,)], 1)
    assert (world.project / "README.md").read_text() == "one\ntwo\n"


def test_author_without_worker_is_left(world):
    branches = start_agents(world, *CLASH, solve=SOLVE)
    world.kill(world._workers[0])
    queue = start(world, "land", "--json", *branches)
    world.wait_until(lambda: world.ask("SELECT 1 FROM retinue.runs WHERE attempt > 1"), "the author is asked")
    queue.send_signal(signal.SIGINT)
    said, errors = queue.communicate(timeout=30)
    assert queue.returncode == 130, (said, errors)
    world.start_worker()
    report = land(world)
    assert (report["landed"], report["refused"], read_attempts(world)) == (branches, [], [(2,)])


@pytest.mark.attack("J1")
def test_hidden_files_are_not_sent(world):
    for name in ("hidden.txt", "shown.txt"):
        (world.project / name).write_text("text\n")
    world.settings["sandbox"] = {"hidden": [str(world.project / "hidden.txt")]}
    (branch,) = start_agents(world, "ls > listed.txt", solve="true")
    assert git(world.project, "show", f"{branch}:listed.txt").split() == ["README.md", "listed.txt", "shown.txt"]


LINES = "".join(f"{number}\n" for number in range(1, 9))
FILES = ("README.md", "new.bin", "notes.txt", "steps.txt")
EDIT = (
    "sed -i s/^2/two/ steps.txt; rm notes.txt; printf '\\0\\1' > new.bin; git add -A; git commit -qm mine; "
    "echo z >> README.md"
)


def undo(world, *words):
    process = start(world, "undo", *words)
    said, errors = process.communicate(timeout=60)
    return process.returncode, said, errors


def start_editor(world):
    """Let a run on a worker change three files and add one, from files that are not all committed."""
    (world.project / "steps.txt").write_text(LINES)
    (world.project / "notes.txt").write_bytes(b"a\r\nb")
    (branch,) = start_agents(world, EDIT, solve="true")
    return branch, branch.removeprefix("pi-agent-")


def read_files(world):
    return {name: (world.project / name).read_bytes() for name in FILES if (world.project / name).exists()}


def land_sent(world, branch):
    """Land a branch that has what was not committed when the run was sent."""
    git(world.project, "clean", "-fdq")
    assert land(world, branch, "--no-verify")["landed"] == [branch]


def test_landed_run_is_undone(world):
    branch, run = start_editor(world)
    before = read_files(world)
    land_sent(world, branch)
    landed = read_files(world)
    assert (landed["new.bin"], landed.get("notes.txt"), landed["steps.txt"][:6]) == (b"\0\1", None, b"1\ntwo\n")
    (world.project / "steps.txt").write_text(landed["steps.txt"].decode() + "9\n")
    assert undo(world, run[:12], "--dry-run")[0] == 0
    status, said, errors = undo(world, run[:12])
    assert (status, said.splitlines()[1:]) == (0, [f"  {name}" for name in FILES]), errors
    assert read_files(world) == before | {"steps.txt": f"{LINES}9\n".encode()}


def test_conflict_leaves_landed_run(world):
    branch, run = start_editor(world)
    land_sent(world, branch)
    (world.project / "steps.txt").write_text(LINES.replace("2", "TWO"))
    before = read_files(world)
    status, said, errors = undo(world, run)
    assert (status, said) == (1, "steps.txt: line 2 changed later by somebody else\n"), errors
    assert read_files(world) == before
    assert undo(world, run, "--theirs")[0] == 0
    assert read_files(world)["steps.txt"] == LINES.encode()


def test_waiting_run_is_put_aside(world):
    branch, run = start_editor(world)
    before, tip = read_files(world), git(world.project, "rev-parse", branch)
    status, said, errors = undo(world, run)
    assert (status, said.splitlines()[0].endswith("changed: no files")) == (0, True), errors
    assert f"its branch {branch} is not merged" in errors
    assert read_files(world) == before
    refs = git(
        world.project, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/pi-*", "refs/retinue/undone"
    )
    assert refs == f"refs/retinue/undone/{branch} {tip}"
    wrong = undo(world, branch)
    assert wrong[0] == 2 and f"no run '{branch}' is recorded in this folder" in wrong[2], wrong


def test_author_of_conflict_is_undone(world):
    branches = start_agents(world, *CLASH, solve=SOLVE)
    assert land(world, *branches)["refused"] == []
    status, said, errors = undo(world, branches[1].removeprefix("pi-agent-"))
    assert (status, said.splitlines()[1:]) == (0, ["  README.md", "  two.txt"]), errors
    assert (world.project / "README.md").read_text() == "one\n"


def test_fetched_run_is_undone(world):
    asked = {"description": "a file", "subagent_type": "general-purpose", "prompt": "Do it."}
    replies = [to("^Start", calls=[{"name": "Agent", "arguments": asked}]), to("^Do", calls=bash("echo 1 > one.txt"))]
    gate = world.shared / "gate"
    waits = world.act(1, after=f"until test -e {gate}; do sleep 0.1; done")
    world.play(*replies, to("^Do", **waits), to("^Do", text="Made it."), to("^Start", text="Waiting."))
    world.start_worker()
    session = start(world, "-p", "--model", "mock/mock-1", "Start.")
    world.wait_until(lambda: world.effects, "it works")
    session.kill()
    session.communicate()
    gate.touch()
    world.wait_until(lambda: world.ask("SELECT 1 FROM retinue.runs WHERE finished IS NOT NULL"), "it has ended")
    [(run,)] = world.ask("SELECT run FROM retinue.runs")
    status, said, errors = undo(world, run)
    assert (status, f"first run: retinue cluster fetch {run}" in errors) == (0, True), (said, errors)
    start(world, "cluster", "fetch", run).communicate(timeout=60)
    git(world.project, "merge", "-q", f"pi-agent-{run}")
    assert (world.project / "one.txt").read_text() == "1\n"
    status, said, errors = undo(world, run)
    assert (status, said.splitlines()[1:], errors.count("fetch")) == (0, ["  one.txt"], 0), errors
    assert not (world.project / "one.txt").exists()

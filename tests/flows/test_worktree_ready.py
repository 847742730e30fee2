import asyncio
import json
import os
import subprocess
import sys
import time

import pytest

from retinue import Retinue, Status
from retinue.core.events import Warned
from retinue.core.messages import SystemMessage, ToolResultMessage
from retinue.settings.entry_approval import EntryApproval
from retinue.testing import make_repo
from tests.flows.crew_world import COPIER, SESSION, call, git, script, to

SHOW = "cat .env a.txt new.txt build/out.txt 2>&1; ls -A | tr '\\n' ' '"


@pytest.fixture
def repo(tmp_path, agent_dir):
    made = make_repo(tmp_path / "repo", {"a.txt": "one\n", ".gitignore": ".env\nbuild/\n"})
    (agent_dir / "agents").mkdir(parents=True, exist_ok=True)
    (agent_dir / "agents" / "copier.md").write_text(COPIER)
    return made


def write_settings(folder, **worktree):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "subagents.json").write_text(json.dumps({"worktree": worktree}))


async def run(tmp_path, repo, command=SHOW, notes=None, **options):
    """The outcome of a run in a worktree, the output of its command, and its system prompt."""
    model = script(tmp_path, to("^work", calls=[call("bash", command=command)]), to("^work", text="done"))
    async with Retinue(repo, model=model, request=SESSION, **options) as crew:
        crew.listen(lambda event: notes.append(event.text) if notes is not None and isinstance(event, Warned) else None)
        handle = await crew.spawn("copier", "work")
        outcome = await handle.wait()
        messages = crew.session_runs.read_messages(handle.id)
    [result] = [each for each in messages if isinstance(each, ToolResultMessage)]
    system = json.dumps([each.sections for each in messages if isinstance(each, SystemMessage)])
    return outcome, result.content[0].text, system


async def test_named_ignored_files_are_copied(tmp_path, repo, agent_dir):
    (repo / ".worktreeinclude").write_text(".env\nbuild/out.*\na.txt\nloose.txt\nlink\n")
    (repo / ".env").write_text("KEY=1\n")
    (repo / "build").mkdir()
    (repo / "build" / "out.txt").write_text("built\n")
    (repo / "build" / "other.txt").write_text("x\n")
    (repo / "loose.txt").write_text("not ignored\n")
    os.symlink("/etc/passwd", repo / "build" / "out.link")
    outcome, shown, system = await run(tmp_path, repo, f"{SHOW}; ls build; stat -c %h .env")
    assert "KEY=1\none\n" in shown and "built\n" in shown
    assert "loose.txt" not in shown and "other.txt" not in shown and "out.link" not in shown
    assert shown.rstrip().endswith("1") and "build/out.txt" in system
    assert (outcome.status, outcome.branch) == (Status.COMPLETED, "")


async def test_file_that_git_would_commit_stays(tmp_path, repo, agent_dir):
    (repo / ".gitignore").write_text(".env\nbuild/\nkeys\n")
    (repo / "keys").write_text("secret\n")
    (repo / ".worktreeinclude").write_text("keys\n")
    outcome, shown, _ = await run(tmp_path, repo)
    assert ("keys" in shown, outcome.branch) == (False, "")


async def test_hidden_file_is_not_copied(tmp_path, repo, agent_dir):
    (repo / ".worktreeinclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1\n")
    (agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"hidden": [str(repo / ".env")]}}))
    _, shown, _ = await run(tmp_path, repo)
    assert "KEY=1" not in shown


async def test_left_out_changes_are_named(tmp_path, repo, agent_dir):
    (repo / "a.txt").write_text("two\n")
    (repo / "new.txt").write_text("new\n")
    _, shown, system = await run(tmp_path, repo)
    assert "one\n" in shown and "left out: a.txt, new.txt." in system


async def test_base_takes_the_changes_along(tmp_path, repo, agent_dir):
    write_settings(agent_dir, base="HEAD+changes")
    (repo / "a.txt").write_text("two\n")
    (repo / "new.txt").write_text("new\n")
    before = git(repo, "status", "--porcelain")
    outcome, shown, system = await run(tmp_path, repo)
    assert "two\nnew\n" in shown and "left out" not in system
    assert (outcome.branch, git(repo, "status", "--porcelain")) == ("", before)
    outcome, _, _ = await run(tmp_path, repo, "echo more > b.txt")
    assert git(repo, "diff", "--name-only", f"{outcome.branch}~1", outcome.branch) == "b.txt"


async def test_change_in_the_second_of_the_commit_is_taken_along(tmp_path, agent_dir):
    """Git compares times by the second: only an index that is as old as the file makes it read the content."""
    (agent_dir / "agents").mkdir(parents=True, exist_ok=True)
    (agent_dir / "agents" / "copier.md").write_text(COPIER)
    write_settings(agent_dir, base="HEAD+changes")
    for attempt in range(5):
        await asyncio.sleep(1 - time.time() % 1)
        repo = make_repo(tmp_path / f"repo{attempt}", {"a.txt": "one\n"})
        committed = (repo / "a.txt").stat()
        (repo / "a.txt").write_text("two\n")
        if int((repo / "a.txt").stat().st_ctime) == int(committed.st_ctime):
            break
    await asyncio.sleep(1 - time.time() % 1)
    _, shown, _ = await run(tmp_path, repo)
    assert "two\n" in shown


@pytest.mark.attack("J1")
async def test_base_leaves_out_what_is_hidden(tmp_path, repo, agent_dir):
    (repo / "new.txt").write_text("secret\n")
    settings = {"worktree": {"base": "HEAD+changes"}, "sandbox": {"hidden": [str(repo / "new.txt")]}}
    (agent_dir / "subagents.json").write_text(json.dumps(settings))
    (repo / "a.txt").write_text("two\n")
    _, shown, _ = await run(tmp_path, repo)
    assert ("two\n" in shown, "secret" in shown) == (True, False)


async def test_base_may_be_a_branch(tmp_path, repo, agent_dir):
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a.txt").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "-")
    write_settings(agent_dir, base="other")
    _, shown, _ = await run(tmp_path, repo)
    assert "other\n" in shown
    write_settings(agent_dir, base="nowhere")
    async with Retinue(repo, model=script(tmp_path, {"text": "x"}), request=SESSION) as crew:
        outcome = await (await crew.spawn("copier", "work")).wait()
    assert (outcome.status, "worktree.base 'nowhere'" in outcome.error) == (Status.FAILED, True)


async def test_setup_prepares_the_copy(tmp_path, repo, agent_dir):
    write_settings(agent_dir, setup="mkdir -p build && echo ready > build/out.txt && echo said")
    outcome, shown, system = await run(tmp_path, repo)
    assert "ready\n" in shown and "It succeeded." in system and "setup" not in outcome.notes
    [log] = (agent_dir / "retinue" / "worktree-setup").iterdir()
    assert "said" in log.read_text() and log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("setup", "words"), [("echo oops; exit 3", "oops"), ("sleep 60", "1")])
async def test_failed_setup_is_told(tmp_path, repo, agent_dir, setup, words):
    write_settings(agent_dir, setup=setup, setupSeconds=1)
    outcome, _, system = await run(tmp_path, repo)
    assert "It failed." in system and words in system
    assert outcome.status is Status.COMPLETED and "The setup command of the worktree failed" in outcome.notes


async def test_setup_stays_in_the_sandbox(tmp_path, repo, agent_dir):
    target = tmp_path / "outside.txt"
    write_settings(agent_dir, setup=f"echo x > {target}")
    await run(tmp_path, repo)
    assert not target.exists()


async def test_command_of_a_project_needs_consent(tmp_path, repo, agent_dir, monkeypatch):
    write_settings(repo / ".pi", setup="mkdir -p build && echo ready > build/out.txt")
    notes = []
    monkeypatch.chdir(repo)
    subprocess.run([sys.executable, "-m", "retinue", "trust", "--yes"], cwd=repo, check=True, capture_output=True)
    _, shown, _ = await run(tmp_path, repo, notes=notes)
    assert "ready" not in shown and any("trust --command worktree.setup --yes" in note for note in notes)
    for flag, expected in (
        ("", "not approved"),
        ("--yes", "approved"),
        ("--no", "not approved"),
        ("--yes", "approved"),
    ):
        words = [sys.executable, "-m", "retinue", "trust", "--command", "worktree.setup", *filter(None, [flag])]
        done = subprocess.run(words, cwd=repo, check=True, capture_output=True, text=True)
        assert f": {expected}\n" in done.stdout and "echo ready" in done.stdout
    _, shown, _ = await run(tmp_path, repo)
    assert "ready\n" in shown
    write_settings(repo / ".pi", setup="echo changed")
    assert EntryApproval("worktree.setup", kind="command").needs_decision
    notes = []
    _, shown, _ = await run(tmp_path, repo, notes=notes)
    assert any("has changed since it was approved" in note for note in notes)


@pytest.mark.parametrize("name", ["worktree.base", "verify"])
def test_unknown_command_is_refused(repo, agent_dir, name):
    write_settings(repo / ".pi", setup="true")
    subprocess.run([sys.executable, "-m", "retinue", "trust", "--yes"], cwd=repo, check=True, capture_output=True)
    words = [sys.executable, "-m", "retinue", "trust", "--command", name, "--yes"]
    done = subprocess.run(words, cwd=repo, capture_output=True, text=True)
    assert (done.returncode, name in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_large_repository_starts_fast(tmp_path, agent_dir):
    folder = tmp_path / "large"
    for number in range(500):
        part = folder / f"d{number:03}"
        part.mkdir(parents=True)
        for each in range(100):
            (part / f"f{each}.txt").write_text(f"{number} {each}\n")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
        git(folder, *words)
    (agent_dir / "agents").mkdir(parents=True, exist_ok=True)
    (agent_dir / "agents" / "copier.md").write_text(COPIER)
    plain = []
    for number in range(3):
        begun = time.monotonic()
        git(folder, "worktree", "add", "--detach", str(tmp_path / f"plain{number}"))
        plain.append(time.monotonic() - begun)
    ours = []
    async with Retinue(folder, model=script(tmp_path, {"text": "done"}), request=SESSION) as crew:
        for _ in range(3):
            begun, first = time.monotonic(), None
            handle = await crew.spawn("copier", "work")
            async for event in handle.events():
                if type(event).__name__ == "TurnStarted" and first is None:
                    first = time.monotonic() - begun
            ours.append(first)
    print(f"git worktree add {min(plain):.2f} s, start of a worktree run {min(ours):.2f} s")
    assert min(ours) <= 2 * min(plain)

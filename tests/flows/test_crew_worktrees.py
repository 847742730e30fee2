import asyncio
import json
import re
from pathlib import Path

import pytest

from retinue import Retinue, Status
from retinue.testing import EventCollector
from retinue.testing.process import open_cli
from tests.flows.crew_world import COPIER, SESSION, call, git, repository, script, to, write


@pytest.fixture
def repo(tmp_path):
    return repository(tmp_path)


@pytest.mark.spec("fleet:B92")
async def test_isolated_run_leaves_a_branch(tmp_path, repo):
    model = script(tmp_path, to("make", calls=write("new.txt")), to("make", text="Made it"))
    async with Retinue(repo, model=model) as crew:
        run = await crew.spawn("general-purpose", "make it", isolation="worktree")
        outcome = await run.wait(20)
    assert (outcome.status, outcome.branch) == (Status.COMPLETED, f"pi-agent-{run.id}")
    assert outcome.notes.startswith(f"\n\n---\nChanges saved to branch `{outcome.branch}`\n")
    assert (git(repo, "show", f"{outcome.branch}:new.txt"), git(repo, "status", "--porcelain")) == ("new", "")


async def test_resumed_run_goes_on_with_its_branch(tmp_path, repo):
    replies = [to("make", calls=write("new.txt")), to("make", text="Made it")]
    replies += [to("look", text="All there")]
    replies += [to("more", calls=write("more.txt")), to("more", text="And more")]
    async with Retinue(repo, model=script(tmp_path, *replies)) as crew:
        run = await crew.spawn("general-purpose", "make it", isolation="worktree")
        branches = [(await run.wait(20)).branch]
        for task in ("look at it", "more of it"):
            branches.append((await (await crew.resume(run.id, task)).wait(20)).branch)
    assert branches == [f"pi-agent-{run.id}"] * 3
    assert git(repo, "ls-tree", "--name-only", branches[0]).split() == ["a.txt", "more.txt", "new.txt"]


async def test_refused_copy_says_so_first(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path)) as crew:
        run = await crew.spawn("general-purpose", "make it", isolation="worktree")
        outcome = await run.wait(20)
    assert outcome.status is Status.FAILED
    assert outcome.error.startswith('Cannot run with isolation: "worktree": ')


async def test_file_decides_for_api_callers(tmp_path, repo, agent_dir):
    (agent_dir / "agents").mkdir(parents=True)
    (agent_dir / "agents" / "copier.md").write_text(COPIER)
    model = script(tmp_path, to("make", calls=write("new.txt")), to("make", text="Made it"))
    async with Retinue(repo, model=model) as crew:
        outcome = await (await crew.spawn("copier", "make it")).wait(20)
    assert (outcome.branch[:9], (repo / "new.txt").exists()) == ("pi-agent-", False)


async def test_bad_isolation_gets_a_handle(tmp_path):
    asked = {"subagent_type": "Explore", "prompt": "look", "description": "a look", "isolation": "worktree"}
    replies = [to("^begin", calls=[call("Agent", **asked)]), to("^begin", text="Too bad")]
    seen = EventCollector()
    async with Retinue(tmp_path, model=script(tmp_path, *replies)) as crew:
        crew.listen(seen)
        await crew.prompt("begin", settle=True)
        assert await crew.runs() == []
    (told,) = [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]
    assert told.startswith('Cannot run with isolation: "worktree": ') and re.search(r"retry-[0-9a-f]{8}", told)


async def test_report_names_the_branch(tmp_path, repo):
    asked = {"subagent_type": "general-purpose", "prompt": "make", "description": "it", "isolation": "worktree"}
    replies = [
        to("^begin", calls=[call("Agent", **asked)]),
        to("^begin", text="started"),
        to("^make", calls=write("new.txt")),
        to("^make", text="x" * 2000),
        to(r"Changes saved to branch `pi-agent-\w+`\nMerge: `git merge", text="Merging"),
    ]
    async with Retinue(repo, model=script(tmp_path, *replies)) as crew:
        assert (await crew.prompt("begin", settle=True)).text == "Merging"


async def test_stopped_run_keeps_its_work(tmp_path, repo):
    replies = [to("make", calls=write("new.txt")), to("make", text="never", delay_ms=60_000)]
    async with Retinue(repo, model=script(tmp_path, *replies)) as crew:
        run = await crew.spawn("general-purpose", "make it", isolation="worktree")
        async for event in run.events():
            if type(event).__name__ == "ToolFinished":
                break
    outcome = run.run.outcome
    assert (outcome.status, git(repo, "show", f"{outcome.branch}:new.txt")) == (Status.STOPPED, "new")


@pytest.mark.inprocess
async def test_killed_process_leaves_no_work_behind(tmp_path, repo, home):
    asked = {"subagent_type": "general-purpose", "prompt": "make", "description": "it", "isolation": "worktree"}
    replies = [to("^begin", calls=[call("Agent", **asked)]), to("^begin", text="started")]
    replies += [to("^make", calls=write("new.txt")), to("^make", text="never", delay_ms=60_000)]
    model = script(tmp_path, *replies)
    with open_cli(["--model", model, "--session-id", "my-session", "-p", "begin"], repo, home=home) as process:
        while not any(map(_has_file, (home / ".pi/agent/retinue/worktrees").glob("*.json"))):
            await asyncio.sleep(0.02)
            assert process.poll() is None
        process.kill()
        process.communicate()
    again = script(tmp_path, to("^go", text="Gone on"), *(to("task-notification", text="Oh") for _ in range(3)))
    async with Retinue(repo, model=again, request=SESSION) as crew:
        (run,) = await crew.runs()
        assert (run.status, run.run.branch) == (Status.INTERRUPTED, f"pi-agent-{run.id}")
        assert "Changes saved to branch" in run.run.outcome.notes
        assert git(repo, "show", f"{run.run.branch}:new.txt") == "new"
        assert (await (await crew.resume(run.id, "go on")).wait(20)).branch == f"pi-agent-{run.id}"


@pytest.mark.attack("I10")
@pytest.mark.inprocess
async def test_killed_process_leaves_no_commit_behind(tmp_path, repo, home):
    asked = {"subagent_type": "general-purpose", "prompt": "make", "description": "it", "isolation": "worktree"}
    commit = "echo one >one; git add one; git -c user.name=a -c user.email=a@b commit -qm inside; echo new >new.txt"
    replies = [to("^begin", calls=[call("Agent", **asked)]), to("^begin", text="started")]
    replies += [to("^make", calls=[call("bash", command=commit)]), to("^make", text="never", delay_ms=60_000)]
    model = script(tmp_path, *replies)
    with open_cli(["--model", model, "--session-id", "my-session", "-p", "begin"], repo, home=home) as process:
        while not any(map(_has_file, (home / ".pi/agent/retinue/worktrees").glob("*.json"))):
            await asyncio.sleep(0.02)
            assert process.poll() is None
        process.kill()
        process.communicate()
    assert git(repo, "fsck", "--no-dangling") == ""
    again = script(tmp_path, *(to("task-notification", text="Oh") for _ in range(3)))
    async with Retinue(repo, model=again, request=SESSION) as crew:
        (run,) = await crew.runs()
        assert git(repo, "log", "--format=%s", run.run.branch).split("\n") == ["pi-agent: it", "inside", "first"]
    left = [path.name for path in (home / ".pi/agent/retinue/worktrees").iterdir()]
    assert (git(repo, "fsck", "--strict", "--no-dangling"), [name for name in left if ".lock" not in name]) == ("", [])


def _has_file(record):
    try:
        return (Path(json.loads(record.read_text())["path"]) / "new.txt").exists()
    except (OSError, ValueError):
        return False

"""Whole runs in a copy: the model's tools work there, and the outcome says where the changes are."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.run import Outcome, Reason, Status
from retinue.engine.clock import SystemClock
from retinue.engine.limits import Limits
from retinue.engine.runner import LiveRun
from retinue.features.worktree.feature import Worktree
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.worktree_world import World, git
from tests.run_setup import build_setup

WRITE = {"calls": [{"name": "write", "arguments": {"path": "new.txt", "content": "by the model\n"}}]}
LOOK = {"calls": [{"name": "bash", "arguments": {"command": "pwd; cat new.txt; git status --short"}}]}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path)


def start(world: World, replies: list[object], cwd: Path | None = None, **wishes: object) -> LiveRun:
    feature = Worktree(world.records, description="do it", tmp=world.tmp, **wishes)  # type: ignore[arg-type]
    clock = SystemClock()
    session = Session.create(cwd="/", directory=None, clock=clock, new_id=lambda: uuid4().hex)
    setup = build_setup(
        "r1",
        cwd or world.repo,
        ScriptedModel(parse_script(replies)),
        tools=build_tools(ToolOptions(), ["write", "bash"]),
        sections={"environment": "# Environment", "instructions": "Work."},
        features=[feature],
        limits=Limits(cleanup_s=20),
    )
    return LiveRun(setup, session, clock=clock)


def note(branch: str = "pi-agent-r1", where: str = "", place: str = "") -> str:
    return f"\n\n---\nChanges saved to branch `{branch}`{where}\nMerge: `git {place}merge {branch}`"


def summary(outcome: Outcome) -> tuple[str, str, str]:
    return outcome.status, outcome.branch, outcome.notes


@pytest.mark.spec("fleet:B92")
async def test_run_works_in_copy(world: World) -> None:
    run = start(world, [WRITE, LOOK, {"text": "done"}])
    outcome = await run.prompt("go")
    assert (outcome.text, *summary(outcome)) == ("done", Status.COMPLETED, "pi-agent-r1", note())
    assert (world.show("pi-agent-r1", "new.txt"), git(world.repo, "status", "--short")) == ("by the model", "")
    assert (world.left, git(world.repo, "log", "-1", "--format=%s", "pi-agent-r1")) == ([], "pi-agent: do it")


async def test_prompt_names_copy(world: World) -> None:
    run = start(world, [{"text": "done"}], world.repo / "src", keeps_place=True)
    outcome = await run.prompt("go")
    sections = run.session.context().sections
    assert (list(sections), outcome.notes) == (["environment", "worktree", "instructions"], "")
    assert sections["environment"].startswith(f"# Environment\nWorking directory: {world.tmp}/pi-agent-r1-")
    assert f"{world.repo} is the user's own checkout" in sections["worktree"]


async def test_chosen_directory_is_named(world: World) -> None:
    run = start(world, [WRITE, {"text": "done"}], world.repo / "src", keeps_place=True)
    outcome = await run.prompt("go")
    assert outcome.notes == note(where=f" in `{world.repo}`", place=f"-C {world.repo} ")
    assert world.show("pi-agent-r1", "src/new.txt") == "by the model"


@pytest.mark.attack("G11")
@pytest.mark.spec("fleet:B92")
async def test_failed_isolation_runs_nothing(world: World, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    outcome = await start(world, [WRITE, {"text": "done"}], tmp_path / "plain").prompt("go")
    assert (outcome.status, outcome.turns, list((tmp_path / "plain").iterdir())) == (Status.FAILED, 0, [])
    assert 'Cannot run with isolation: "worktree"' in outcome.error


async def test_failed_run_keeps_work(world: World) -> None:
    run = start(world, [WRITE, {"error": {"kind": "request", "message": "no"}}])
    outcome = await run.prompt("go")
    assert (summary(outcome), world.left) == ((Status.FAILED, "pi-agent-r1", note()), [])


async def test_aborted_run_keeps_work(world: World) -> None:
    run = start(world, [WRITE, {"calls": [{"name": "bash", "arguments": {"command": "sleep 20"}}]}])
    async with asyncio.TaskGroup() as group:
        work = group.create_task(run.prompt("go"))
        while not list(world.tmp.glob("*/new.txt")):
            await asyncio.sleep(0.01)
        run.abort(Reason.USER)
    assert (summary(work.result()), world.left) == ((Status.STOPPED, "pi-agent-r1", note()), [])


async def test_cancelled_run_keeps_work(world: World) -> None:
    run = start(world, [WRITE, {"calls": [{"name": "bash", "arguments": {"command": "sleep 20"}}]}])
    async with asyncio.TaskGroup() as group:
        work = group.create_task(run.prompt("go"))
        while not list(world.tmp.glob("*/new.txt")):
            await asyncio.sleep(0.01)
        work.cancel()
    assert (world.show("pi-agent-r1", "new.txt"), world.left) == ("by the model", [])


async def test_next_prompt_goes_on(world: World) -> None:
    run = start(world, [WRITE, {"text": "one"}, LOOK, {"text": "two"}])
    await run.prompt("go")
    outcome = await run.prompt("on")
    told = run.session.context().messages[-2].content[0].text  # type: ignore[union-attr, index]
    assert (summary(outcome), told.endswith("by the model\n")) == ((Status.COMPLETED, "pi-agent-r1", note()), True), (
        told
    )


@pytest.mark.spec("fleet:B93")
async def test_copy_that_stays_is_told(world: World) -> None:
    nested = {"calls": [{"name": "bash", "arguments": {"command": "git init -q inner && echo x > inner/f"}}]}
    outcome = await start(world, [nested, {"text": "done"}]).prompt("go")
    [copy] = world.tmp.iterdir()
    problem = "git repositories inside of it cannot be put on a branch: 'inner'"
    assert summary(outcome) == (Status.COMPLETED, "", f"\n\n---\nThe copy stays at `{copy}`: {problem}")
    assert (copy / "inner" / "f").read_text() == "x\n"

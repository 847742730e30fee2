import json
import shutil
import subprocess

import pytest

from retinue.core.run import Status
from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}
WRITE = {"calls": [{"name": "write", "arguments": {"path": "new.txt", "content": "new"}}]}
AGE = "UPDATE retinue.runs SET finished = now() - interval '4 days' RETURNING 1"


def retinue(world, *words):
    env = {"RETINUE_DATABASE": world.database}
    return run_cli(words, world.project, env, home=world.agent_dir.parent.parent)


def prune(world, *more):
    return retinue(world, "cluster", "prune", "--days", "3", *more)


async def work(world, agent="general-purpose"):
    async with world.open_face() as face:
        handle = await face.spawn(agent, "Work.")
        await handle.wait()
    return handle.id


async def test_unfetched_changes_are_kept(world):
    world.play(WRITE, DONE)
    shutil.rmtree(world.project / ".git")
    world.start_worker()
    run = await work(world)
    world.ask(AGE)
    kept, listed = prune(world), json.loads(prune(world, "--json").stdout)
    subprocess.run(["git", "init", "-q"], cwd=world.project, check=True)
    fetched, gone = retinue(world, "cluster", "fetch", run), prune(world)
    assert kept.stderr.splitlines() == [
        f"retinue: kept 1 run whose changes were not fetched: {run}.1; to fetch them, run in the repository: "
        f"retinue cluster fetch {run}.1",
        "retinue: to delete these too, add --unfetched",
        "retinue: nothing else finished more than 3 days ago",
    ]
    left = {"id": f"{run}.1", "runId": run, "agent": "general-purpose", "isHeard": True, "hasChanges": True}
    assert (listed["removed"]["runs"], listed["kept"]) == (0, [left])
    assert (fetched.status, "removed 1 runs" in gone.stderr, world.ask("SELECT * FROM retinue.runs")) == (0, True, [])


@pytest.mark.slow
async def test_unheard_result_is_kept(world):
    world.play(WRITE, DONE)
    world.start_worker()
    run = await work(world)
    world.ask(AGE)
    world.ask("UPDATE retinue.runs SET heard = NULL RETURNING 1")
    kept, gone = prune(world), prune(world, "--unfetched")
    assert f"kept 1 run whose result was not read: {run}.1; open the session" in kept.stderr
    assert ("kept" in gone.stderr, "removed 1 runs" in gone.stderr) == (False, True)


@pytest.mark.slow
async def test_later_attempt_has_it_all(world):
    world.play(WRITE, DONE, DONE)
    world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await handle.wait()
        again = await (await face.resume(handle.id, "Go on.")).wait()
    world.ask(AGE)
    world.ask("UPDATE retinue.runs SET heard = NULL, home = NULL WHERE attempt = 1 RETURNING 1")
    assert (again.status, "removed 2 runs" in prune(world).stderr) == (Status.COMPLETED, True)


def test_flag_of_prune_belongs_to_it(world):
    world.play(DONE)
    done = retinue(world, "cluster", "status", "--unfetched")
    assert (done.status, done.stderr) == (2, "retinue: --unfetched works only with retinue cluster prune\n")


async def test_session_that_is_not_kept_goes(world):
    folder = world.agent_dir / "agents"
    folder.mkdir()
    for name, keeps in (("silent", "false"), ("chatty", "true")):
        head = f"---\nname: {name}\ndescription: works\npersist_session: {keeps}\n---\nWork.\n"
        (folder / f"{name}.md").write_text(head)
    world.play(world.act(1), {"text": "First things."}, DONE)
    world.start_worker()
    async with world.open_face() as face:
        chatty, silent = [await face.spawn(name, "Work.") for name in ("chatty", "silent")]
        outcomes = [await handle.wait() for handle in (chatty, silent)]
        left = world.ask("SELECT DISTINCT run FROM retinue.records WHERE kind = 'session'")
        ends = world.ask("SELECT count(*) FROM retinue.runs WHERE outcome IS NOT NULL AND heard IS NOT NULL")
        await (await face.resume(silent.id, "Go on.")).wait()
    assert ([outcome.status for outcome in outcomes], ends) == ([Status.COMPLETED] * 2, [(2,)])
    assert left == [(chatty.id,)]
    assert "First things." in str(world.server.requests[-1].json)
    assert world.ask("SELECT DISTINCT run FROM retinue.records WHERE kind = 'session'") == [(chatty.id,)]

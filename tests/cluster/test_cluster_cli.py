import asyncio
import json
import shutil
import signal
import subprocess
import time

import psycopg
import pytest

from retinue.core.run import Status
from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}
SLOW = {"text": "Slowly.", "delay_ms": 60_000}


def retinue(world, *words):
    env = {"RETINUE_DATABASE": world.database}
    return run_cli(words, world.project, env, home=world.agent_dir.parent.parent)


def read_status(world):
    return json.loads(retinue(world, "cluster", "status", "--json").stdout)


def check(world):
    done = retinue(world, "doctor", "--json")
    items = json.loads(done.stdout)["items"]
    return [(item["status"], item["message"]) for item in items if item["category"] == "cluster"], done


async def wait_for_working(world, count):
    def is_so():
        return world.ask("SELECT count(*) FROM dbos.workflow_status WHERE status = 'PENDING'") == [(count,)]

    await asyncio.to_thread(world.wait_until, is_so, f"{count} work")


async def spawn(world, face, count=1):
    """Start runs, and return when they are on the cluster."""
    handles = [await face.spawn("general-purpose", "Work.", description=f"work {n}") for n in range(count)]

    def are_there():
        return world.has_runs() and world.ask("SELECT count(*) FROM retinue.runs") == [(count,)]

    await asyncio.to_thread(world.wait_until, are_there, "the runs are sent")
    return handles


def test_worker_without_git_says_so(world, tmp_path):
    world.play(DONE)
    world.start_worker(PATH=str(tmp_path))
    assert "git is not installed on this worker, or not on PATH" in world.read_log(0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_worker(world, number, status):
    world.play(DONE)
    worker = world.start_worker("--slots", "7")
    [row] = read_status(world)["workers"]
    assert world.read_log(0) == f"retinue: worker {row['name']} takes up to 7 runs from {describe(world)!r}\n"
    assert (row["pid"], row["slots"], row["busy"], row["gone"]) == (worker.pid, 7, 0, False)
    worker.send_signal(number)
    assert worker.wait(20) == status
    assert [row["gone"] for row in read_status(world)["workers"]] == [True]


def describe(world):
    return world.database.partition("@")[2]


@pytest.mark.slow
async def test_second_signal_ends_at_once(world):
    world.play(SLOW)
    worker = world.start_worker("--drain", "60")
    async with world.open_face() as face:
        await spawn(world, face)
        await asyncio.to_thread(world.wait_until, lambda: world.server.requests, "it works")
        worker.send_signal(signal.SIGTERM)
        await asyncio.to_thread(world.wait_until, lambda: "waiting up to 60 s" in world.read_log(0), "it drains")
        begin_s = time.monotonic()
        worker.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(worker.wait, 10) == 143
        assert time.monotonic() - begin_s < 5


@pytest.mark.slow
async def test_leaving_worker_finishes_first(world):
    world.play({"text": "All done.", "delay_ms": 3000})
    leaving = world.start_worker("--drain", "60", "--slots", "1")
    async with world.open_face() as face:
        first, second = await spawn(world, face, 2)
        await asyncio.to_thread(world.wait_until, lambda: world.server.requests, "it works")
        leaving.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(leaving.wait, 40)
        owners = world.ask("SELECT owner <> '', finished IS NOT NULL FROM retinue.runs ORDER BY created")
        world.start_worker()
        outcomes = [await handle.wait() for handle in (first, second)]
    assert (status, sorted(owners)) == (143, [(False, False), (True, True)])
    assert [outcome.status for outcome in outcomes] == [Status.COMPLETED] * 2
    assert world.ask("SELECT epoch FROM retinue.runs") == [(1,), (1,)]


async def test_leaving_worker_gives_back(world):
    world.play(world.act(1, after="sleep 60"), DONE)
    leaving = world.start_worker()
    async with world.open_face() as face:
        [handle] = await spawn(world, face)
        await asyncio.to_thread(world.wait_until, lambda: world.effects, "it works")
        leaving.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(leaving.wait, 30) == 143
        [run] = read_status(world)["runs"]
        world.start_worker()
        outcome = await handle.wait()
    assert (run["status"], run["worker"], outcome.status) == ("waiting", "", Status.COMPLETED)


@pytest.mark.slow
def test_worker_leaves_without_database(world, postgres):
    world.play(DONE)
    worker = world.start_worker()
    postgres.stop()
    try:
        world.wait_until(lambda: "the database cannot be reached" in world.read_log(0), "it notices")
        worker.send_signal(signal.SIGTERM)
        status = worker.wait(30)
    finally:
        postgres.start()
    said = world.read_log(0).splitlines()
    assert (status, len(said)) == (143, 3)
    assert said[-1] == "retinue: the database cannot be reached: other workers will take over the unfinished runs"


async def test_status_shows_everything(world):
    world.play(SLOW)
    world.start_worker("--slots", "2")
    async with world.open_face() as face:
        handles = await spawn(world, face, 5)
        await wait_for_working(world, 2)
        state, shown = read_status(world), retinue(world, "cluster", "status").stdout
        items, _ = check(world)
        for handle in handles:
            await handle.stop()
            await handle.wait()
    [worker] = state["workers"]
    assert (state["database"], worker["busy"], state["runsTotal"]) == (describe(world), 2, 5)
    assert state["queues"][0] == {"name": "retinue-1", "waiting": 3, "working": 2}
    rows = [(run["status"], run["worker"], run["agent"]) for run in state["runs"]]
    assert rows == [("working", worker["name"], "general-purpose")] * 2 + [("waiting", "", "general-purpose")] * 3
    assert sorted(run["description"] for run in state["runs"]) == [f"work {n}" for n in range(5)]
    assert state["lag"]["oldestWaitingMs"] > 0
    assert shown.startswith(f"{describe(world)}: 1 worker, 2 of 2 slots busy, 3 waiting\n")
    assert (f"(on {worker['name']})" in shown, "retinue-1 3 waiting" in shown) == (True, True)
    reachable = ("pass", f"Database {describe(world)} reachable")
    assert items == [reachable, ("pass", "1 worker running")]


@pytest.mark.slow
async def test_workers_have_their_own_places(world):
    world.play(SLOW)
    world.start_worker("--slots", "1")
    world.start_worker("--slots", "3")
    async with world.open_face() as face:
        handles = await spawn(world, face, 8)
        await wait_for_working(world, 4)
        await asyncio.sleep(0.5)
        found = sorted(row["busy"] for row in read_status(world)["workers"])
        for handle in handles:
            await handle.stop()
            await handle.wait()
    assert found == [1, 3]


@pytest.mark.slow
async def test_total_holds_for_all(world):
    world.play(SLOW)
    world.start_worker("--slots", "3", "--total", "2")
    world.start_worker("--slots", "3")
    async with world.open_face() as face:
        handles = await spawn(world, face, 5)
        await wait_for_working(world, 2)
        await asyncio.sleep(0.5)
        queue = read_status(world)["queues"][0]
        for handle in handles:
            await handle.stop()
            await handle.wait()
    assert queue == {"name": "retinue-1", "waiting": 3, "working": 2}


@pytest.mark.slow
async def test_prune_removes_what_is_old(world):
    world.settings["budget"] = {"tokens": 600_000}
    world.play(world.act(1), DONE)
    world.start_worker()
    async with world.open_face() as face:
        old, new = await spawn(world, face, 2)
        await old.wait()
        await new.wait()
        world.ask("UPDATE retinue.runs SET finished = now() - interval '4 days' WHERE run = %s RETURNING 1", old.id)
    told = retinue(world, "cluster", "prune", "--days", "3", "--json")
    removed = json.loads(told.stdout)["removed"]
    tables = ("runs", "records", "parcels", "leases")
    left = {name: world.ask(f"SELECT count(*) FROM retinue.{name}")[0][0] for name in tables}
    assert (removed["runs"], removed["records"] > 0, removed["leases"], removed["parcels"]) == (1, True, 0, 0)
    assert world.ask("SELECT DISTINCT run FROM retinue.records") == [(new.id,)]
    assert min(left.values()) > 0
    assert world.ask("SELECT count(*) FROM dbos.workflow_status") == world.ask("SELECT count(*) FROM retinue.runs")
    again = retinue(world, "cluster", "prune", "--days", "3")
    assert (again.status, again.stderr) == (0, "retinue: nothing finished more than 3 days ago\n")


def test_other_tables_are_refused(world):
    world.play(DONE)
    world.kill(world.start_worker())
    world.ask("UPDATE retinue.meta SET version = 0 RETURNING 1")
    for words in (("worker",), ("cluster", "status"), ("cluster", "prune", "--days", "1")):
        done = retinue(world, *words)
        assert (done.status, "has tables of version 0, this program knows" in done.stderr) == (2, True)
    items, done = check(world)
    assert (items, done.status) == ([("fail", "The cluster's database cannot be used")], 1)


async def test_worker_without_key_says_so(world):
    world.play(DONE)
    theirs = world.agent_dir.parent / "theirs"
    theirs.mkdir()
    models = json.loads((world.agent_dir / "models.json").read_text())
    models["providers"]["mock"]["apiKey"] = "$NO_SUCH_KEY"
    (theirs / "models.json").write_text(json.dumps(models))
    world.start_worker(PI_CODING_AGENT_DIR=str(theirs))
    [worker] = read_status(world)["workers"]
    async with world.open_face() as face:
        [handle] = await spawn(world, face)
        outcome = await handle.wait()
    told = "no key for provider mock: set NO_SUCH_KEY, which its apiKey in models.json names, or run retinue login mock"
    assert (outcome.status, outcome.error) == (Status.FAILED, f"on worker {worker['name']}: {told}")
    assert world.read_log(0).splitlines()[1:] == [f"retinue: run {handle.id}.1 cannot work on this worker: {told}"]


async def test_remote_out_of_reach_is_told(world):
    world.play(DONE)
    remote = "http://127.0.0.1:1/away.git"
    for words in (("remote", "add", "origin", remote), ("update-ref", "refs/remotes/origin/main", "HEAD")):
        subprocess.run(["git", *words], cwd=world.project, check=True)
    world.start_worker()
    outcomes = []
    for settings in ({}, {"cluster": {"useRemote": False}}):
        world.change(settings)
        async with world.open_face() as face:
            handle = await face.spawn("general-purpose", "Work.")
            outcomes.append(await handle.wait())
    assert [outcome.status for outcome in outcomes] == [Status.FAILED, Status.COMPLETED]
    assert f"the remote '{remote}' cannot be fetched from" in outcomes[0].error
    assert "set cluster.useRemote to false" in outcomes[0].error
    assert "cannot be fetched from" in world.read_log(0)


async def test_changes_are_fetched_later(world):
    world.play({"calls": [{"name": "write", "arguments": {"path": "new.txt", "content": "new"}}]}, DONE)
    shutil.rmtree(world.project / ".git")
    world.start_worker()
    async with world.open_face() as face:
        [handle] = await spawn(world, face)
        outcome = await handle.wait()
    early = retinue(world, "cluster", "fetch", handle.id)
    subprocess.run(["git", "init", "-q"], cwd=world.project, check=True)
    told = [retinue(world, "cluster", "fetch", name) for name in (handle.id, f"{handle.id}.1", "nobody")]
    branch = f"pi-agent-{handle.id}"
    shown = subprocess.run(["git", "show", f"{branch}:new.txt"], cwd=world.project, capture_output=True, text=True)
    assert f"when that is fixed, run: retinue cluster fetch {handle.id}" in outcome.notes
    assert (early.status, "is not in a git repository" in early.stderr) == (1, True)
    assert [done.status for done in told] == [0, 0, 1]
    assert told[0].stderr == f"retinue: changes saved to branch {branch}; merge: git merge {branch}\n"
    assert "unknown run 'nobody' in the database" in told[2].stderr
    assert (shown.stdout, outcome.branch) == ("new", "")


def test_role_without_rights_is_told(world):
    world.play(DONE)
    world.kill(world.start_worker())
    with psycopg.connect(world.database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS looker")
        connection.execute("CREATE ROLE looker LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA retinue, dbos TO looker")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA retinue, dbos TO looker")
        world.database = world.database.replace("retinue@", "looker@")
        run = ("run", "--model", "mock/mock-1", "general-purpose", "Work.")
        words = (("worker",), ("cluster", "prune", "--days", "1"), run)
        told = [retinue(world, *each) for each in words]
        looked = retinue(world, "cluster", "status")
        connection.execute("DROP OWNED BY looker")
        connection.execute("DROP ROLE looker")
    assert ([done.status for done in told], looked.status) == ([2, 2, 1], 0)
    for done in told:
        assert "permission denied for table" in done.stderr and "as the role that owns the tables" in done.stderr
        assert "internal error" not in done.stderr and "InsufficientPrivilege" not in done.stderr


def test_doctor_looks_and_leaves_nothing(world, postgres):
    world.play(DONE)
    world.database = postgres.make_database()
    name = describe(world)
    before, _ = check(world)
    assert world.ask("SELECT to_regclass('retinue.meta')") == [(None,)]
    world.kill(world.start_worker())
    world.ask("UPDATE retinue.workers SET version = '9.9' RETURNING 1")
    odd, _ = check(world)
    world.ask("UPDATE retinue.workers SET gone = now() RETURNING 1")
    alone, _ = check(world)
    reachable = ("pass", f"Database {name} reachable")
    assert before == [("warn", f"Database {name} is empty")]
    assert odd == [reachable, ("pass", "1 worker running"), ("warn", "Workers of other versions")]
    assert alone == [reachable, ("warn", "No worker is running")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://retinue@127.0.0.1:1/x", "cannot be used: connection failed"),
        ("mysql://somewhere", "the address of the database is not valid"),
    ],
)
def test_face_says_which_address_is_wrong(world, address, told):
    world.play(DONE)
    words = ("run", "--model", "mock/mock-1", "general-purpose", "Work.")
    done = run_cli(words, world.project, {"RETINUE_DATABASE": address}, home=world.agent_dir.parent.parent)
    assert (done.status, told in done.stderr, "internal error" in done.stderr) == (1, True, False), done.stderr


def test_worker_of_another_version_says_so(world):
    world.play(DONE)
    world.start_worker()
    world.ask("UPDATE retinue.workers SET version = '9.9' RETURNING 1")
    world.start_worker()
    told = world.read_log(1)
    assert "others have not (1 of '9.9'): install the same version everywhere" in told

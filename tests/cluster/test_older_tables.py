import asyncio
import os
import signal

import psycopg
import pytest

from retinue.core.errors import ConfigError
from retinue.core.run import Status
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.schema import VERSION
from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}
COLUMNS = (
    "SELECT table_name::text, column_name::text, data_type::text, is_nullable::text FROM information_schema.columns"
    " WHERE table_schema = 'retinue' UNION ALL SELECT tablename, indexdef, '', '' FROM pg_indexes"
    " WHERE schemaname = 'retinue' UNION ALL SELECT event_object_table, trigger_name, event_manipulation, ''"
    " FROM information_schema.triggers WHERE trigger_schema = 'retinue' ORDER BY 1, 2, 3"
)


def make_old(world):
    """Let the tables be those of version 1, as its workers have left them."""
    world.do("DROP FUNCTION retinue.check_version CASCADE")
    world.do("DROP TABLE retinue.cases, retinue.gates")
    world.do("ALTER TABLE retinue.runs DROP COLUMN heard, DROP COLUMN home")
    world.do("UPDATE retinue.meta SET version = 1")
    world.do("UPDATE dbos.workflow_status SET application_version = 'retinue-1'")


def retinue(world, *words):
    env = {"RETINUE_DATABASE": world.database}
    return run_cli(words, world.project, env, home=world.agent_dir.parent.parent)


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


@pytest.mark.slow
async def test_waiting_run_survives_upgrade(world):
    world.play(DONE)
    fresh = world.ask(COLUMNS)
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.ask("SELECT 1 FROM dbos.workflow_status"), "it waits")
        make_old(world)
        world.launch_worker()
        outcome = await handle.wait()
    told = f"upgraded the tables of {world.database.partition('@')[2]!r} from version 1 to {VERSION}"
    assert (outcome.status, told in world.read_log(0)) == (Status.COMPLETED, True), world.read_log(0)
    assert (world.ask(COLUMNS), world.ask("SELECT version FROM retinue.meta")) == (fresh, [(VERSION,)])


async def test_run_of_dead_old_worker_goes_on(world):
    world.play(world.act(1, after="sleep 60"), DONE)
    first = world.start_worker()
    async with world.open_face() as face:
        done = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        world.kill(first)
        make_old(world)
        world.start_worker()
        outcome = await done.wait()
    gone = world.ask("SELECT id LIKE %s FROM retinue.workers WHERE gone IS NOT NULL", f"%-{first.pid}-%")
    assert (outcome.status, len(world.effects), gone) == (Status.COMPLETED, 1, [(True,)])
    assert any("interrupted, effect unknown" in str(request.json) for request in world.server.requests)


async def test_finished_run_survives_upgrade(world):
    world.play(DONE)
    first = world.start_worker()
    async with world.open_face() as face:
        before = await (await face.spawn("general-purpose", "Work.")).wait()
    kept = world.ask("SELECT id, outcome::text, epoch FROM retinue.runs"), world.ask("SELECT * FROM retinue.records")
    first.send_signal(signal.SIGTERM)
    await asyncio.to_thread(first.wait, 20)
    make_old(world)
    world.start_worker()
    assert before.status is Status.COMPLETED
    assert kept == (
        world.ask("SELECT id, outcome::text, epoch FROM retinue.runs"),
        world.ask("SELECT * FROM retinue.records"),
    )


def test_living_old_workers_are_named(world):
    world.play(DONE)
    world.start_worker()
    world.start_worker()
    make_old(world)
    names = [name for (name,) in world.ask("SELECT id FROM retinue.workers ORDER BY host, started, id")]
    done = retinue(world, "worker")
    assert done.stderr == (
        f"retinue: the database {world.database.partition('@')[2]!r} has tables of version 1, this program knows "
        f"{VERSION}. It can upgrade them when no worker of the older version is left, and 2 are: "
        f"{', '.join(names)}. Stop them (SIGTERM; unfinished runs continue afterwards), "
        "then start this one\n"
    )
    assert (done.status, world.ask("SELECT version FROM retinue.meta")) == (2, [(1,)])


@pytest.mark.slow
async def test_sleeping_old_worker_is_cut_off(world):
    world.play(world.act(1, after="sleep 2"), DONE)
    old = world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        os.kill(old.pid, signal.SIGSTOP)
        make_old(world)
        world.do("UPDATE retinue.workers SET seen = now() - interval '1 minute'")
        world.start_worker()
        outcome = await handle.wait()
        os.kill(old.pid, signal.SIGCONT)
        await wait_for(world, lambda: "it starts again" in world.read_log(0), "it notices")
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 1)


@pytest.mark.slow
async def test_run_sent_by_older_works(world):
    world.play(DONE)
    world.kill(world.start_worker())
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.ask("SELECT 1 FROM dbos.workflow_status"), "it is sent")
        world.do("UPDATE retinue.runs SET assignment = assignment - 'sections' || '{\"systemPrompt\": \"Be old.\"}'")
        make_old(world)
        world.start_worker()
        outcome = await handle.wait()
    [request] = world.server.requests
    assert (outcome.status, b"Be old." in request.body) == (Status.COMPLETED, True), outcome


async def test_unreadable_run_fails_with_a_word(world):
    world.play(DONE)
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.ask("SELECT 1 FROM dbos.workflow_status"), "it is sent")
        world.do("UPDATE retinue.runs SET assignment = assignment - 'task'")
        world.start_worker()
        outcome = await handle.wait()
    told = "it was sent by another version of retinue: Object missing required field `task`"
    assert (outcome.status, outcome.error) == (Status.FAILED, told)


def test_two_new_workers_upgrade_once(world):
    world.play(DONE)
    make_old(world)
    both = [world.launch_worker(), world.launch_worker()]
    for worker in both:
        world.await_worker(worker)
    said = [world.read_log(number).count("from version 1") for number in range(2)]
    assert (sorted(said), world.ask("SELECT version FROM retinue.meta")) == ([0, 1], [(VERSION,)])


def test_failed_upgrade_leaves_old_tables(world):
    world.play(DONE)
    make_old(world)
    world.do("CREATE VIEW retinue.cases AS SELECT 1 AS one")
    done = retinue(world, "worker")
    assert (done.status, done.stderr.count("\n"), "could not be upgraded" in done.stderr) == (2, 1, True)
    assert world.ask("SELECT version FROM retinue.meta") == [(1,)]


def test_face_of_newer_version_asks_for_worker(world):
    world.play(DONE)
    make_old(world)
    told = f"has tables of version 1, this program knows {VERSION}; start a worker of this version"
    words = (("cluster", "status"), ("run", "--model", "mock/mock-1", "general-purpose", "Work."))
    for status, done in zip((2, 1), (retinue(world, *each) for each in words), strict=True):
        assert (done.status, told in done.stderr) == (status, True), done.stderr
    assert world.ask("SELECT version FROM retinue.meta") == [(1,)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", [("worker",), ("cluster", "status")])
def test_older_program_is_refused(world, words):
    world.play(DONE)
    world.do(f"UPDATE retinue.meta SET version = {VERSION + 1}")
    done = retinue(world, *words)
    told = f"has tables of version {VERSION + 1}, this program knows {VERSION}; install the same version of retinue"
    assert (done.status, told in done.stderr) == (2, True), done.stderr


async def test_face_left_behind_is_told(world):
    world.play(DONE)
    world.start_worker()
    async with world.open_face() as face:
        before = await (await face.spawn("general-purpose", "Work.")).wait()
        world.do(f"UPDATE retinue.meta SET version = {VERSION + 1}")
        after = await (await face.spawn("general-purpose", "Work.")).wait()
    told = f"the tables are of version {VERSION + 1} by now, this program knows {VERSION}; install the same version"
    assert (before.status, after.status, told in after.error) == (Status.COMPLETED, Status.FAILED, True), after


async def test_worker_left_behind_cannot_join(world):
    with psycopg.connect(world.database) as old, pytest.raises(psycopg.errors.RaiseException, match="knows an older"):
        old.execute(
            "INSERT INTO retinue.workers (id, lock_key, backend, host, pid, version, slots)"
            " VALUES ('old', 1, 1, 'box', 1, '0.0', 1)"
        )
    async with Database(world.database) as database:
        world.do(f"UPDATE retinue.meta SET version = {VERSION + 1}")
        with pytest.raises(ConfigError, match="by now"):
            await database.fetch(
                "INSERT INTO retinue.workers (id, lock_key, backend, host, pid, version, slots)"
                " VALUES ('late', 1, 1, 'box', 1, '0.0', 1)"
            )

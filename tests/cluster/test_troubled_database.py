import asyncio
from contextlib import contextmanager

import psycopg
import pytest

from retinue.core.events import Warned
from retinue.core.run import Status

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}
FULL = "has no room left on its disk: could not extend file; free some space there"
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '{told}' USING ERRCODE = '{state}'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON {table} EXECUTE FUNCTION refuse();
"""


@contextmanager
def refuse(world, table, state="53100", told="could not extend file"):
    world.do(REFUSE.format(table=table, state=state, told=told))
    try:
        yield
    finally:
        world.do("DROP FUNCTION refuse CASCADE")


def listen(face):
    warned = []
    face.listen(lambda event: warned.append(event.text) if isinstance(event, Warned) else None)
    return warned


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


def list_said(world):
    return [line.removeprefix("retinue: ") for line in world.read_log(0).splitlines()[1:]]


async def test_full_disk_is_told_on_both_sides(world):
    world.play(world.act(1, after="sleep 1"), world.act(2), DONE)
    world.start_worker()
    async with world.open_face() as face:
        warned = listen(face)
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        with refuse(world, "retinue.records"):
            await wait_for(world, lambda: list_said(world) and warned, "both are told")
            await asyncio.sleep(1.5)
        outcome = await handle.wait()
        await wait_for(world, lambda: len(warned) > 1, "the face is told of the end")
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 2)
    assert list_said(world) == [f"the database {FULL}", "the database is available again"]
    assert warned == [f"the database {FULL}", "the database is available again"]


@pytest.mark.parametrize("table", ["retinue.runs", "dbos.workflow_status"])
async def test_run_is_sent_when_there_is_room(world, table):
    world.play(DONE)
    world.start_worker()
    async with world.open_face() as face:
        warned = listen(face)
        with refuse(world, table):
            handle = await face.spawn("general-purpose", "Work.")
            await wait_for(world, lambda: warned, "the face is told")
        outcome = await handle.wait()
    place = repr(world.database.partition("@")[2])
    assert outcome.status is Status.COMPLETED
    assert warned == [f"the cluster's database {place} {FULL}", "the database is available again"]


@pytest.fixture
def crowd(world, postgres):
    """A role with a limit, which the one of all tests cannot have."""
    world.do("CREATE ROLE crowd LOGIN IN ROLE retinue")
    owner, world.database = world.database, world.database.replace("retinue@", "crowd@")
    yield owner
    world.database = owner
    for worker in world._workers:
        world.kill(worker)
    world.do("DROP ROLE crowd")


def change(owner, sql):
    """As the owner; whoever is connected as the other role has to come again."""
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(sql)
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowd'")


@pytest.mark.parametrize(
    ("bad", "good", "told"),
    [
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1", "accepts no more connections: "),
        pytest.param(
            *("SET default_transaction_read_only = on", "RESET ALL", "is read-only: "), marks=pytest.mark.slow
        ),
    ],
)
async def test_refused_role_is_waited_for(world, crowd, bad, good, told):
    world.play(world.act(1, after="sleep 1"), world.act(2), DONE)
    world.start_worker()
    async with world.open_face() as face:
        warned = listen(face)
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        change(crowd, f"ALTER ROLE crowd {bad}")
        await wait_for(world, lambda: told in world.read_log(0) and told in str(warned), "both are told")
        change(crowd, f"ALTER ROLE crowd {good}")
        outcome = await handle.wait()
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 2)
    assert len([line for line in list_said(world) if told in line]) == 1


def test_worker_waits_for_connections(world, crowd):
    world.play(DONE)
    change(crowd, "ALTER ROLE crowd CONNECTION LIMIT 4")
    worker = world.launch_worker()
    world.wait_until(lambda: "accepts no more connections" in world.read_log(0), "it says so")
    change(crowd, "ALTER ROLE crowd CONNECTION LIMIT -1")
    world.await_worker(worker)
    assert (worker.poll(), "internal error" in world.read_log(0)) == (None, False)

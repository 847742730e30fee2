"""Whoever can write into the database, a worker that means harm among them: what they may not do to a laptop."""

import asyncio

import msgspec
import pytest

from retinue.core.events import RunPlaced, RunQueued, Warned
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.durable.cluster.schema import VERSION
from tests.cluster.test_cluster_cli import DONE, retinue

pytestmark = [pytest.mark.timeout(120), pytest.mark.attack("SEC-12")]
FINISHED = Outcome(Status.COMPLETED, Reason.DONE, text="All done.")
DENIED = """
ALTER TABLE retinue.records RENAME TO hidden;
CREATE FUNCTION retinue.refuse() RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE insufficient_privilege; RETURN true; END $$;
CREATE VIEW retinue.records AS SELECT * FROM retinue.hidden WHERE retinue.refuse();
INSERT INTO retinue.hidden (run, attempt, epoch, kind, path, place, data)
    SELECT run, 1, 1, 'session', 'session.jsonl', 0, 'x' FROM retinue.runs
"""


class Impostor:
    """Says what it likes in the name of a worker."""

    def __init__(self, world):
        self._world = world

    async def claim(self):
        """Take the one run that was sent."""
        await asyncio.to_thread(self._world.wait_until, self._world.has_runs, "a run was sent")
        [(self.id,)] = self._world.ask("UPDATE retinue.runs SET owner = 'evil', epoch = 1 RETURNING id")

    def tell(self, *events):
        lines = b"\n".join(map(msgspec.json.encode, events))
        self._world.ask(
            "INSERT INTO retinue.events (id, epoch, number, data) VALUES (%s, 1, 1, %s) RETURNING seq", self.id, lines
        )

    def end(self, outcome=FINISHED):
        self._world.ask(
            "UPDATE retinue.runs SET outcome = %s, finished = now() WHERE id = %s RETURNING pg_notify(face, id)",
            msgspec.json.encode(outcome).decode(),
            self.id,
        )


@pytest.fixture
def impostor(world):
    world.play(DONE)
    return Impostor(world)


async def test_worker_speaks_for_its_run_alone(world, impostor):
    heard = []
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await impostor.claim()
        face.listen(heard.append)
        forged = Run(id=handle.id, parent_id="", depth=1, agent="evil", description="", attempt=99)
        impostor.tell(
            Warned(run_id=face.run_id, text="forged"),
            RunPlaced(run_id=face.run_id, worker="forged"),
            RunQueued(run_id=handle.id, run=forged, request={}),
        )
        impostor.end()
        await handle.wait()
    assert ([event for event in heard if "forged" in repr(event)], handle.run.attempt) == ([], 1)


async def test_worker_names_no_files(world, impostor):
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await impostor.claim()
        # What it had made cannot be read, so that its own word is all there is.
        world.do(DENIED)
        impostor.end(
            msgspec.structs.replace(FINISHED, session_file=str(world.agent_dir / "models.json"), branch="main")
        )
        outcome = await handle.wait()
    assert (outcome.text, outcome.session_file, outcome.branch) == ("All done.", "", "")


@pytest.mark.sample(2)
@pytest.mark.parametrize("table", ["events", "cases"])
async def test_nonsense_ends_its_run_alone(world, impostor, table):
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await impostor.claim()
        columns, values = ("key, waits", "'k', true") if table == "cases" else ("number", "1")
        world.do(
            f"INSERT INTO retinue.{table} (id, epoch, data, {columns}) SELECT id, 1, 'x', {values} FROM retinue.runs"
        )
        impostor.end()
        await handle.wait()
        assert (await face.prompt("Hello.")).text == "All done."


async def test_status_shows_no_control_characters(world, impostor):
    async with world.open_face() as face:
        await face.spawn("general-purpose", "Work.")
        await impostor.claim()
        world.do(f"SET retinue.version = {VERSION}; INSERT INTO retinue.workers VALUES ('w', 1, 0, 'h', 1, 'v', 1)")
        columns = {"runs": ("queue", "agent", "description"), "workers": ("id", "host", "version")}
        for table, names in columns.items():
            world.do(f"UPDATE retinue.{table} SET " + ", ".join(f"{name} = E'\\x1b]0;owned\\x07'" for name in names))
        world.do("UPDATE retinue.runs SET owner = ''")
        told = [
            retinue(world, *words) for words in (("cluster", "status"), ("doctor",), ("cluster", "fetch", "\x1b[2J"))
        ]
    shown = "".join(each.stdout + each.stderr for each in told)
    assert ("owned" in shown, sorted({char for char in shown if char < " "})) == (True, ["\n"])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("{parcel,known}", "7", "was sent by another version of retinue"),
        ("{parcel,branch}", '"main; rm -rf ~"', "'main; rm -rf ~' is not a valid branch name for a run"),
        ("{parcel,branch}", '"main"', "'main' is not a valid branch name for a run"),
        ("{runId}", '"../../main"', "is not a valid branch name for a run"),
    ],
)
async def test_fetch_takes_no_other_branch(world, impostor, field, value, told):
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await impostor.claim()
        impostor.end()
        await handle.wait()
    world.do(f"UPDATE retinue.runs SET assignment = jsonb_set(assignment, '{field}', '{value}')")
    done = retinue(world, "cluster", "fetch", handle.id)
    assert (done.status, told in done.stderr, "git merge" in done.stderr) == (1, True, False), done.stderr

"""Whoever can write into the database: what they may not do to a worker, which has rights of its own to keep."""

import asyncio
import json

import pytest

from retinue.core.run import Status
from tests.cluster.test_cluster_cli import DONE, SLOW

pytestmark = pytest.mark.timeout(120)


async def send(world, face):
    """A run that no worker has yet."""
    handle = await face.spawn("general-purpose", "Work.")
    await asyncio.to_thread(world.wait_until, world.has_runs, "a run was sent")
    return handle


@pytest.mark.attack("SEC-6")
async def test_sender_chooses_no_settings(world, tmp_path):
    world.play(world.act(0), DONE)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("models.json", "subagents.json"):
        (other / name).write_bytes((world.agent_dir / name).read_bytes())
    async with world.open_face() as face:
        handle = await send(world, face)
        marks = json.dumps({"PI_CODING_AGENT_DIR": str(other), "RETINUE_DATABASE": "", "PATH": str(other)})
        world.do(
            "UPDATE retinue.runs SET assignment = jsonb_set(assignment, '{marks}', assignment->'marks' || "
            f"'{marks}'::jsonb)"
        )
        world.change({"denyTools": ["bash"]})
        world.start_worker()
        await handle.wait()
    assert world.effects == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("restrict", '{"tools": 7}'),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("stop", '{"reason": "x"}'), ("steer", "[]"), ("answer", "7"))
        ),
    ],
)
async def test_nonsense_ends_no_worker(world, kind, data):
    world.play(SLOW)
    async with world.open_face() as face:
        handle = await send(world, face)
        worker = world.start_worker()
        await asyncio.to_thread(world.wait_until, lambda: world.server.requests, "it works")
        world.do(
            f"INSERT INTO retinue.words (id, key, kind, data) SELECT id, 'k', '{kind}', '{data}' FROM retinue.runs"
        )
        outcome = await handle.wait()
    assert (outcome.status, worker.poll()) == (Status.STOPPED, None), world.read_log(0)


@pytest.mark.attack("SEC-11")
async def test_sender_chooses_no_folder(world, tmp_path):
    world.play(DONE)
    async with world.open_face() as face:
        handle = await send(world, face)
        # Its place in the queue is still its own.
        world.do("""UPDATE retinue.runs SET assignment = jsonb_set(assignment, '{runId}', '"../../outside/x"')""")
        world.start_worker()
        outcome = await handle.wait(timeout_s=30)
    assert ("its record belongs to another run" in outcome.error, list(tmp_path.rglob("outside"))) == (True, [])


@pytest.mark.attack("I3", "I1")
@pytest.mark.parametrize(("flags", "is_loaded"), [((), False), (("--approve",), True)])
async def test_worker_decides_whom_to_trust(world, tmp_path, flags, is_loaded):
    mark = tmp_path / "mark"
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()\ndef register(api):\n    pass\n"
    (world.project / ".pi" / "extensions").mkdir(parents=True)
    (world.project / ".pi" / "extensions" / "y.py").write_text(code)
    world.play(DONE)
    world.start_worker(*flags)
    async with world.open_face(default_project_trust="always") as face:
        mark.unlink()  # the face has loaded it for itself
        assert (await (await face.spawn("general-purpose", "Work.")).wait()).status is Status.COMPLETED
    assert mark.exists() is is_loaded


@pytest.mark.attack("I3", "I1")
async def test_sender_names_no_code(world, tmp_path):
    mark, outside = tmp_path / "mark", tmp_path / "x.py"
    outside.write_text(f"__import__('pathlib').Path({str(mark)!r}).touch()\ndef register(api):\n    pass\n")
    world.play(DONE)
    async with world.open_face() as face:
        handle = await send(world, face)
        marks = json.dumps({"RETINUE_EXTENSIONS": json.dumps({"selection": [str(outside)]})})
        world.do(
            "UPDATE retinue.runs SET assignment = jsonb_set(jsonb_set(assignment, '{trusted}', 'true'), '{marks}', "
            f"assignment->'marks' || '{marks}'::jsonb)"
        )
        world.start_worker()
        assert (await handle.wait()).status is Status.COMPLETED
    assert not mark.exists()

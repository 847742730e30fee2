import asyncio
import json
import shutil

import pytest

from retinue.core.run import Status
from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


@pytest.mark.slow
async def test_worker_without_folder_takes_nothing(world, tmp_path):
    world.play(DONE)
    folder = tmp_path / "w0"
    world.start_worker()
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("in the way")
    told = f"its folder {str(folder)!r}: not a directory; it takes no runs until that is fixed"
    await wait_for(world, lambda: told in world.read_log(0), "the log says so")
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await asyncio.sleep(1)
        begun = world.ask("SELECT max(epoch) FROM retinue.runs")
        folder.unlink()
        outcome = await handle.wait()
    assert (begun, outcome.status) == ([(0,)], Status.COMPLETED)
    assert world.read_log(0).splitlines()[-1].endswith("can be used again")


def test_worker_does_not_start_without_folder(world, tmp_path):
    world.play(DONE)
    folder = tmp_path / "taken"
    folder.write_text("")
    env = {"RETINUE_DATABASE": world.database, "RETINUE_WORKER_DIR": str(folder)}
    done = run_cli(("worker",), world.project, env, home=world.agent_dir.parent.parent)
    told = (
        f"retinue: no run can work in the worker's folder {str(folder)!r}: not a directory; fix that, or name another"
    )
    assert (done.status, done.stderr.startswith(told)) == (2, True), done.stderr


@pytest.mark.parametrize("is_good", [True, False])
def test_doctor_looks_at_folder(world, tmp_path, is_good):
    world.play(DONE)
    folder = tmp_path / "taken"
    folder.mkdir() if is_good else folder.write_text("")
    env = {"RETINUE_DATABASE": world.database, "RETINUE_WORKER_DIR": str(folder)}
    done = run_cli(("doctor", "--json"), world.project, env, home=world.agent_dir.parent.parent)
    items = [(item["status"], item["message"]) for item in json.loads(done.stdout)["items"]]
    expected = ("pass", "Worker's folder usable") if is_good else ("fail", "Worker's folder cannot be used")
    assert expected in items

import os

import pytest

from retinue.testing.process import run_cli

pytestmark = pytest.mark.timeout(120)
CLOCK = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {off_s}
time.time_ns = lambda: _time_ns() + {off_s} * 10**9
"""


@pytest.fixture
def set_clock(tmp_path):
    """Variables of a program whose clock is wrong by so much."""

    def make(off_s):
        folder = tmp_path / f"clock{off_s}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(CLOCK.format(off_s=off_s))
        return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)}

    return make


async def test_pruning_counts_by_the_database(world, set_clock):
    world.play({"text": "All done."})
    world.start_worker()
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    env = {"RETINUE_DATABASE": world.database, **set_clock(1000 * 86_400)}
    words = ("cluster", "prune", "--days", "3")
    done = run_cli(words, world.project, env, home=world.agent_dir.parent.parent)
    assert (done.status, done.stderr) == (0, "retinue: nothing finished more than 3 days ago\n")

"""What a run on a worker may touch there: its own workspace, and nothing else of the worker's."""

import json
from pathlib import Path

import pytest

from tests.flows.sandbox_world import need_status

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def roots(world):
    """The home directory of a worker that keeps to its defaults, as do its runs."""
    world.settings["sandbox"] = {}
    (Path.home() / ".cache").mkdir()
    return Path.home()


async def work(world, *calls):
    """What a run is told for its calls on such a worker."""
    world.play({"calls": list(calls)}, {"text": "All done."})
    world.start_worker(RETINUE_WORKER_DIR="")
    async with world.open_face() as face:
        outcome = await (await face.spawn("general-purpose", "Work.")).wait()
    entries = [json.loads(line) for line in Path(outcome.session_file).read_text().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [each["content"][0]["text"] for each in messages if each["role"] == "toolResult"]


async def test_commands_leave_other_workspaces_alone(world, roots):
    need_status("bwrap")
    command = "for path in mine ../../other ../../../cache/other; do echo x >>$path; done; cat mine"
    (said,) = await work(world, {"name": "bash", "arguments": {"command": command}})
    assert (said.endswith("x\n"), list(roots.rglob("other"))) == (True, [])


async def test_file_tools_leave_other_workspaces_alone(world, roots):
    calls = [{"name": "write", "arguments": {"path": path, "content": "x"}} for path in ("mine", "../../other")]
    mine, other = await work(world, *calls)
    assert ("mine" in mine, "other" in other, list(roots.rglob("other"))) == (True, True, []), (mine, other)

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from retinue import Retinue, Status
from tests.flows.crew_world import SESSION, call, script, to

WAIT = {"text": "late", "delay_ms": 60_000}


@pytest.fixture
def copy_home(agent_dir, tmp_path):
    """What a process that is killed now would leave, as the home of another."""

    def copy():
        shutil.copytree(agent_dir, tmp_path / "left", symlinks=True, ignore=shutil.ignore_patterns("*.lock"))
        return {"PI_CODING_AGENT_DIR": str(tmp_path / "left")}

    return copy


async def until(test):
    async with asyncio.timeout(5):
        while not test():
            await asyncio.sleep(0.01)


async def words_after_resuming(folder, model, environment, run_id):
    """What the user has said to a run that was cut off, when it has gone on."""
    async with Retinue(folder, model=model, request=SESSION, environment=environment) as crew:
        (cut,) = await crew.runs()
        assert (cut.id, cut.status) == (run_id, Status.INTERRUPTED)
        outcome = await (await crew.resume(run_id, "go on")).wait(5)
        session = open_lines(outcome.session_file)
    return [line["message"]["content"][0]["text"] for line in session if line.get("message", {}).get("role") == "user"]


def open_lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.inprocess
async def test_words_that_were_cut_off_are_said_again(tmp_path, copy_home):
    model = script(tmp_path, {"text": "Hi"}, to("^look", **WAIT))
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("Explore", "look")
        await until(lambda: run.status is Status.RUNNING)
        await run.steer("tests too")
        left = copy_home()
    again = script(tmp_path, to("go on|tests too", text="Both"), to("go on|tests too", text="Both"))
    assert await words_after_resuming(tmp_path, again, left, run.id) == ["look\n\ngo on", "tests too"]


@pytest.mark.inprocess
async def test_run_without_reply_begins_anew(tmp_path, copy_home):
    model = script(tmp_path, {"text": "Hi"}, to("^look", **WAIT))
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("Explore", "look")
        await until(lambda: run.run.turns == 1)
        left = copy_home()
    again = script(tmp_path, to("^look\n\ngo on$", text="Both"))
    assert await words_after_resuming(tmp_path, again, left, run.id) == ["look\n\ngo on"]


@pytest.mark.inprocess
async def test_words_that_were_heard_are_not_said_again(tmp_path, copy_home):
    model = script(tmp_path, {"text": "Hi"}, to("^tests", calls=[call("ls")]), to("^tests", **WAIT))
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("Explore", "look")
        await run.steer("tests too")
        await until(lambda: run.run.turns == 2)
        left = copy_home()
    again = script(tmp_path, to("go on", text="Both"))
    assert await words_after_resuming(tmp_path, again, left, run.id) == ["look", "tests too", "go on"]

import asyncio
import json

import pytest
from msgspec.structs import replace

from retinue import Retinue, Status
from retinue.core.events import ScheduleChanged, SchedulerReady, Warned
from retinue.testing import EventCollector
from tests.flows.crew_world import SESSION, call, git, script, to

JOB = {
    "id": "job1",
    "name": "nightly",
    "description": "nightly",
    "schedule": "2020-01-01T00:00:00.000Z",
    "scheduleType": "once",
    "subagent_type": "Explore",
    "prompt": "look",
    "enabled": True,
    "createdAt": "2019-12-31T00:00:00.000Z",
}


def plant(project):
    """A file of jobs, one of them overdue, that nobody of us has written."""
    folder = project / ".pi" / "subagent-schedules"
    folder.mkdir(parents=True)
    (folder / "my-session.json").write_text(json.dumps({"version": 1, "jobs": [JOB]}))


def schedule(text):
    return call("Agent", subagent_type="Explore", prompt="look", description="a look", schedule=text)


async def changed(seen, kind):
    for _ in range(200):
        found = [event for event in seen.events if isinstance(event, ScheduleChanged) and event.change == kind]
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(seen.events)


async def fired(crew, seen):
    return (await changed(seen, "fired"))[0].agent_id


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def test_scheduled_call_becomes_a_run(tmp_path, work):
    replies = [to("^later", calls=[schedule("+1s")]), to("^later", text="Noted"), to("^look", text="Seen")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        assert (await crew.prompt("later", settle=True)).text == "Noted"
        assert await crew.runs() == []
        run_id = await fired(crew, seen)
        (run,) = await crew.runs()
        assert (run.id, (await run.wait(5)).text) == (run_id, "Seen")
    assert [event.job_count for event in seen.events if isinstance(event, SchedulerReady)] == [0]


async def test_scheduled_run_needs_its_repository(tmp_path, work):
    git(work, "init", "-q")
    git(work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begin")
    wish = schedule("+1s")
    wish["arguments"]["isolation"] = "worktree"
    replies = [to("^later", calls=[wish]), to("^later", text="Noted"), to("^look", text="Seen")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("later", settle=True)
        (work / ".git").rename(tmp_path / "gone")
        (change,) = await changed(seen, "error")
        assert (change.error.partition(":")[0], await crew.runs()) == ("Cannot run with isolation", [])
        (job,) = json.loads((work / ".pi" / "subagent-schedules" / "my-session.json").read_text())["jobs"]
        assert job["lastStatus"] == "error"


@pytest.mark.attack("A20")
async def test_jobs_of_a_clone_do_not_fire(tmp_path, work):
    plant(work)
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path), request=SESSION) as crew:
        crew.listen(seen)
        await asyncio.sleep(0.2)
        assert await crew.runs() == []
    (text,) = [event.text for event in seen.events if isinstance(event, Warned)]
    assert text.endswith("its schedules came with a project that is not trusted; they do not fire")


async def test_trusted_project_may_bring_jobs(tmp_path, work):
    plant(work)
    seen, request = EventCollector(), replace(SESSION, approve=True)
    async with Retinue(work, model=script(tmp_path, to("^look", text="Seen")), request=request) as crew:
        crew.listen(seen)
        await fired(crew, seen)
        (run,) = await crew.runs()
        assert (await run.wait(5)).text == "Seen"


@pytest.mark.attack("A20")
async def test_clone_takes_no_further_jobs(tmp_path, work):
    plant(work)
    replies = [to("^later", calls=[schedule("1h")]), to("^later", text="Oh")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("later")
    (result,) = [event.result for event in seen.events if type(event).__name__ == "ToolFinished"]
    assert result.is_error and "is not trusted" in result.content[0].text


async def test_own_jobs_fire_in_the_next_process(tmp_path, work):
    replies = [to("^later", calls=[schedule("+1s")]), to("^later", text="Noted"), to("^look", text="Seen")]
    model, seen = script(tmp_path, *replies), EventCollector()
    async with Retinue(work, model=model, request=SESSION) as crew:
        await crew.prompt("later")
    await asyncio.sleep(1)
    async with Retinue(work, model=script(tmp_path, to("^look", text="Seen")), request=SESSION) as crew:
        crew.listen(seen)
        await fired(crew, seen)
        (run,) = await crew.runs()
        assert (await run.wait(5)).status is Status.COMPLETED
    assert [event.job_count for event in seen.events if isinstance(event, SchedulerReady)] == [1]

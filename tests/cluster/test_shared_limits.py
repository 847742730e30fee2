"""A usage limit that one worker has reached holds for all that use the key."""

import asyncio
import json
from pathlib import Path

import pytest

from retinue.core.model import Draft, Failure, ModelInfo, ModelRequest
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.shared_gates import DatabaseGates
from retinue.engine.limit_wait import LimitWait
from retinue.engine.scope import Scope
from retinue.models.gate import Gates
from retinue.models.retry import RetryPolicy
from retinue.testing.clock import FakeClock
from tests.cluster.test_nested_runs import LEAD, spawn, start_face, to

INFO = ModelInfo("mock", "m", "mine", account="key-1")
OTHER = ModelInfo("mock", "m", "mine", account="key-2")
LIMIT = Failure("rate", "x", retryable=True, retry_after_s=3600)


class Worker:
    def __init__(self, clock, database, opens_ms):
        self.clock, self.opens_ms = clock, opens_ms
        self.gates = Gates(clock, DatabaseGates(database, clock))
        self.asked: list[int] = []

    async def ask(self, info=INFO):
        while True:
            passage = await self.gates.enter(info)
            self.asked.append(self.clock.now_ms())
            await self.clock.sleep(1.0)
            failure = LIMIT if info is INFO and self.clock.now_ms() < self.opens_ms else None
            is_refused = self.gates.leave(passage, info, failure, RetryPolicy())
            await self.gates.share(passage, info)
            if not is_refused:
                return


async def drive(clock, tasks, seconds):
    end_s = clock.steady_s() + seconds
    while clock.steady_s() < end_s and not all(task.done() for task in tasks):
        await clock.advance(20)
        await asyncio.sleep(0.005)


async def test_limit_of_one_worker_holds_for_all(database):
    clock = FakeClock()
    async with Database(database) as opened, asyncio.TaskGroup() as group:
        workers = [Worker(clock, opened, clock.now_ms() + 3_600_000) for _ in range(3)]
        first = group.create_task(workers[0].ask())
        await drive(clock, [first], 100)
        tasks = [first, *(group.create_task(worker.ask()) for worker in workers for _ in range(2))]
        other = group.create_task(workers[1].ask(OTHER))
        await drive(clock, [other], 200)
        assert other.done() and sum(len(worker.asked) for worker in workers) == 2
        await drive(clock, tasks, 20_000)
        assert all(task.done() for task in tasks)
        asked = sorted(moment for worker in workers for moment in worker.asked)
        assert len(asked) == 1 + 1 + 7  # the refused one, the one with another key, and one for each
        assert asked[2] >= workers[0].opens_ms and asked[3] > asked[2]
        assert await opened.fetch("SELECT * FROM retinue.gates") == []


class SlowDatabase:
    """Answers, as a database far away does, some time after it has done what it was asked for."""

    def __init__(self, database):
        self.database = database

    async def fetch(self, sql, *values):
        rows = await self.database.fetch(sql, *values)
        await asyncio.sleep(0.2)
        return rows


@pytest.mark.parametrize("moment", ["claim", "call"])
async def test_cancelled_probe_keeps_no_claim(database, moment):
    clock = FakeClock()
    async with Database(database) as opened:
        slow = DatabaseGates(SlowDatabase(opened), clock)
        await slow.close("mock", clock.now_ms())
        wait = LimitWait("run", Gates(clock, slow), Scope(), clock, lambda event: None, RetryPolicy)
        model = Asked(clock)
        draft = Draft(model.info, started_ms=clock.now_ms())
        asking = asyncio.create_task(wait.ask(model, ModelRequest(system="", messages=[], tools=[]), draft))
        while not await opened.fetch("SELECT 1 FROM retinue.gates WHERE probed IS NOT NULL"):
            await asyncio.sleep(0.01)
        if moment == "call":
            await model.was_asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled() and model.was_asked.is_set() == (moment == "call")
        assert await opened.fetch("SELECT probed FROM retinue.gates") == [(None,)]


class Asked:
    """A model that does not answer."""

    def __init__(self, clock):
        self.info = ModelInfo("mock", "m", "mine")
        self.clock, self.was_asked = clock, asyncio.Event()

    async def reply(self, request, draft):
        self.was_asked.set()
        await asyncio.sleep(3600)


@pytest.mark.timeout(120)
def test_killed_worker_repeats_nothing_at_a_limit(world):
    refused = {"message": "usage limit reached", "kind": "rate", "status": 429, "retry_after_s": 5, "times": 1}
    world.play(
        to("^Start", calls=spawn("Dig.", "general-purpose")),
        to("^Start", text="Waiting."),
        to("^Dig", calls=[{"name": "ls", "arguments": {}}]),
        to("^Dig", text="Dug.", error=refused),
        to("", text="Told."),
    )
    (world.agent_dir / "settings.json").write_text(json.dumps({"retry": {"maxAgentDelayMs": 500}}))
    worker = world.start_worker()
    first = start_face(world, "Start")
    told = first.communicate(timeout=60)[1].splitlines()
    assert first.returncode == 75
    assert [line.partition(" until ")[0] for line in told[:-1]] == ["retinue: mock: limit"] * 2
    assert len(world.server.requests) == 4
    world.kill(worker)
    world.start_worker()
    again = start_face(world, *told[-1].split()[4:])
    answer, notes = again.communicate(timeout=60)
    assert (again.returncode, answer) == (0, "Told.\n"), notes
    assert len(world.server.requests) == 6


@pytest.mark.timeout(120)
def test_processes_on_a_worker_tell_each_other_of_a_limit(world):
    agents = world.project / ".pi" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text(LEAD)
    (agents / "digger.md").write_text("---\nname: digger\ndescription: Digs.\nrunner: process\n---\nDig.")
    refused = {"message": "usage limit reached", "kind": "rate", "status": 429, "retry_after_s": 3600, "times": 9}
    world.play(
        to("^Start", calls=spawn("Lead.", "lead")),
        to("^Start", text="Waiting."),
        to("^Lead", calls=[*spawn("Dig here.", "digger"), *spawn("Dig there.", "digger")]),
        to("^Lead", text="Leading."),
        to("^Dig here", calls=[{"name": "bash", "arguments": {"command": "sleep 1"}}]),
        to("^Dig there", calls=[{"name": "bash", "arguments": {"command": "sleep 6"}}]),
        to("^Dig here", text="Dug.", error=refused),
        to("^Dig there", text="Dug.", error=refused),
    )
    (world.agent_dir / "settings.json").write_text(json.dumps({"retry": {"maxAgentDelayMs": 500}}))
    world.start_worker("--approve")
    face = start_face(world, "Start")
    try:
        world.wait_until(lambda: is_running("Dig there."), "the process naps")
        world.wait_until(lambda: not is_running("Dig there."), "the process has ended")
    finally:
        face.kill()
        face.communicate()
    last = [request.json["messages"][-1]["content"] for request in world.server.requests]
    assert last.count("(no output)") == 1


def is_running(task):
    return any(task in read_quietly(file) for file in Path("/proc").glob("[0-9]*/cmdline"))


def read_quietly(file):
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.sample(1)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("runner", ["inprocess", "process"])
def test_limit_below_a_run_on_a_worker_ends_the_prompt(world, tmp_path, runner):
    agents = world.project / ".pi" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text(LEAD)
    (agents / "digger.md").write_text(f"---\nname: digger\ndescription: Digs.\nrunner: {runner}\n---\nDig.")
    refused = {"message": "usage limit reached", "kind": "rate", "status": 429, "retry_after_s": 20, "times": 1}
    world.play(
        to("^Start", calls=spawn("Lead.", "lead")),
        to("^Start", text="Waiting."),
        to("^Lead", calls=spawn("Dig.", "digger")),
        to("^Lead", text="Leading."),
        to("^Dig", text="Dug.", error=refused),
        to("", text="Told."),
    )
    (world.agent_dir / "settings.json").write_text(json.dumps({"retry": {"maxAgentDelayMs": 500}}))
    world.start_worker("--approve")
    first = start_face(world, "--mode", "json", "--session", str(tmp_path / "main.jsonl"), "Start")
    records, notes = first.communicate(timeout=60)
    waits = [record for record in map(json.loads, records.splitlines()) if record["type"] == "subagents:waiting"]
    assert (first.returncode, sorted(wait["depth"] for wait in waits)) == (75, [1, 2]), notes
    assert notes.splitlines()[-2].partition(" until ")[0] == "retinue: mock: limit"
    again = start_face(world, *notes.splitlines()[-1].split()[4:])
    answer, notes = again.communicate(timeout=60)
    assert (again.returncode, answer) == (0, "Told.\n"), notes

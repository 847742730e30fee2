import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from retinue.core.events import RunFinished, RunQueued, RunStarted
from retinue.core.run import Reason, Status
from retinue.engine.admission import SpawnRefused
from retinue.engine.clock import SystemClock
from retinue.engine.limits import Bounds
from retinue.engine.manager import Manager
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.testing.clock import EventCollector
from tests.run_setup import build_setup
from tests.runners import is_durable, make_backend

SLOW = {"text": "done", "delay_ms": 100}


def make_run(run_id, replies, path=None, tree=None):
    clock = SystemClock()
    if path is not None and path.exists():
        session = Session.open(path, clock=clock, new_id=lambda: uuid4().hex, tree=tree)
    else:
        session = Session.create(cwd="/", directory=None, path=path, clock=clock, new_id=lambda: uuid4().hex, tree=tree)
    return LiveRun(build_setup(run_id, Path("/"), ScriptedModel(parse_script(replies))), session, clock=clock)


class Outfits:
    """Runs that play the script named by their agent."""

    def __init__(self, scripts, find_file):
        self.scripts = scripts
        self.find_file = find_file

    def find_grant(self, run_id):
        return None

    @asynccontextmanager
    async def open(self, run, request, parent):
        live = make_run(run.id, self.scripts[request.agent], self.find_file(run.id), parent.session.tree)
        try:
            yield live
        finally:
            if live.session.path is not None:
                live.session.close()


class Crew:
    def __init__(self, scripts, **bounds):
        self.events = EventCollector()
        self.folder = TemporaryDirectory()
        self.root = make_run("main", [{"text": "main"}], self.find_file("main"))
        self.root.bus.listen(self.events, pieces=False)
        self.backend = make_backend(self.root, self.find_file)
        clock = SystemClock()
        self.manager = Manager(
            self.root,
            Outfits(scripts, self.find_file),
            self.backend,
            clock=clock,
            new_id=lambda: uuid4().hex[:17],
            bounds=Bounds(**bounds),
        )

    def find_file(self, run_id):
        """Where a session lies; only durable runs need one."""
        folder = Path(self.folder.name)
        file = folder / "main.jsonl" if run_id == "main" else folder / "main" / run_id / "session.jsonl"
        return file if is_durable() else None

    async def __aenter__(self):
        await self.backend.__aenter__()
        return self

    async def __aexit__(self, *error):
        self.manager.stop_all()
        await self.backend.__aexit__(*error)
        self.root.session.close()
        self.folder.cleanup()

    def spawn(self, agent="slow", parent=None, **fields):
        return self.manager.spawn(
            RunRequest(agent=agent, task="t", description=agent, surface="fleet", **fields), parent
        )

    async def until(self, run):
        """Wait until a run has begun."""
        while run.status is Status.QUEUED:
            await asyncio.sleep(0.002)

    def kinds(self, run):
        return [type(event).__name__ for event in self.events.events if event.run_id == run.id]


async def test_spawn_returns_before_the_run_is_done():
    async with Crew({"slow": [SLOW]}) as crew:
        run = crew.spawn()
        assert run.status is Status.QUEUED
        assert await crew.manager.wait(run.id, 5)
        assert (run.status, run.text, crew.kinds(run)) == (
            Status.COMPLETED,
            "done",
            ["RunQueued", "RunStarted", "RunFinished"],
        )


async def test_queued_run_starts_when_slot_frees():
    async with Crew({"slow": [SLOW]}, max_concurrent=2) as crew:
        runs = [crew.spawn() for _ in range(5)]
        await crew.until(runs[1])
        assert [run.status for run in runs] == [Status.RUNNING] * 2 + [Status.QUEUED] * 3
        for run in runs:
            await crew.manager.wait(run.id, 5)
        started = [event.run_id for event in crew.events.of(RunStarted)]
        assert started == [run.id for run in runs]


async def test_larger_limit_starts_queued_runs():
    async with Crew({"slow": [SLOW]}, max_concurrent=1) as crew:
        runs = [crew.spawn() for _ in range(3)]
        crew.manager.resize(3)
        await crew.until(runs[2])
        assert [run.status for run in runs] == [Status.RUNNING] * 3


async def test_queued_run_can_be_stopped():
    async with Crew({"slow": [SLOW]}, max_concurrent=1) as crew:
        first, second = crew.spawn(), crew.spawn()
        assert (crew.manager.stop(second.id), crew.manager.stop(second.id)) == (True, False)
        assert (second.status, second.outcome.reason) == (Status.STOPPED, Reason.USER)
        await crew.manager.wait(first.id, 5)
        assert crew.kinds(second) == ["RunQueued", "RunFinished"]


async def test_working_run_can_be_stopped():
    async with Crew({"slow": [{"text": "never", "delay_ms": 60_000}]}) as crew:
        run = crew.spawn()
        await asyncio.sleep(0.02)
        assert crew.manager.stop(run.id)
        assert await crew.manager.wait(run.id, 1)
        assert (run.status, run.outcome.reason) == (Status.STOPPED, Reason.USER)


async def test_run_can_be_stopped_before_it_begins():
    async with Crew({"slow": [SLOW]}) as crew:
        run = crew.spawn()
        assert crew.manager.stop(run.id)
        assert await crew.manager.wait(run.id, 1)
        assert (run.status, crew.kinds(run)) == (Status.STOPPED, ["RunQueued", "RunFinished"])


async def test_steering_before_start_is_delivered():
    async with Crew({"slow": [SLOW, {"text": "steered"}]}, max_concurrent=1) as crew:
        crew.spawn()
        run = crew.spawn()
        assert crew.manager.steer(run.id, "only tests")
        await crew.manager.wait(run.id, 5)
        assert (run.status, crew.manager.steer(run.id, "late")) == (Status.COMPLETED, False)


async def test_failing_outfit_is_one_failed_run():
    async with Crew({"slow": [SLOW]}) as crew:
        lost, fine = crew.spawn("missing"), crew.spawn()
        await crew.manager.wait(lost.id, 5)
        await crew.manager.wait(fine.id, 5)
        assert (lost.status, lost.outcome.error, fine.status) == (
            Status.FAILED,
            "KeyError: 'missing'",
            Status.COMPLETED,
        )


@pytest.mark.attack("E6", "E12")
async def test_depth_and_count_are_limited():
    async with Crew({"slow": [SLOW]}, max_depth=2, max_spawns=3) as crew:
        child = crew.spawn()
        grandchild = crew.spawn(parent=child.id)
        with pytest.raises(SpawnRefused, match="depth is 2"):
            crew.spawn(parent=grandchild.id)
        crew.spawn()
        with pytest.raises(SpawnRefused, match="maxSpawnsPerTree"):
            crew.spawn()
        crew.manager.admission.begin_prompt()
        assert crew.spawn().depth == 1


async def test_stop_of_all_tells_how_many():
    async with Crew({"slow": [{"text": "x", "delay_ms": 60_000}], "fast": [{"text": "p"}]}, max_concurrent=2) as crew:
        await crew.manager.wait(crew.spawn("fast").id, 5)
        runs = [crew.spawn() for _ in range(3)]
        async with asyncio.timeout(5):
            while [run.status for run in runs] != [Status.RUNNING, Status.RUNNING, Status.QUEUED]:
                await asyncio.sleep(0.01)
        assert crew.manager.stop_all() == 3
        for run in runs:
            await crew.manager.wait(run.id, 5)
        assert ([run.status for run in runs], crew.manager.stop_all()) == ([Status.STOPPED] * 3, 0)


async def test_stopped_parent_takes_its_children_along():
    async with Crew({"slow": [{"text": "x", "delay_ms": 60_000}]}) as crew:
        parent = crew.spawn()
        child = crew.spawn(parent=parent.id)
        await asyncio.sleep(0.02)
        crew.manager.stop(parent.id)
        await crew.manager.wait(child.id, 2)
        await crew.manager.wait(parent.id, 2)
        assert (parent.outcome.reason, child.outcome.reason) == (Reason.USER, Reason.PARENT)


async def test_parent_stays_until_its_children_settle():
    async with Crew({"fast": [{"text": "p"}], "slow": [SLOW]}) as crew:
        parent = crew.spawn("fast")
        child = crew.spawn(parent=parent.id)
        await crew.manager.wait(parent.id, 5)
        ends = [event.run_id for event in crew.events.of(RunFinished)]
        assert ends == [child.id, parent.id]


async def test_resumed_run_goes_on_under_its_id():
    async with Crew({"slow": [SLOW, SLOW]}) as crew:
        run = crew.spawn()
        with pytest.raises(SpawnRefused, match="still"):
            crew.manager.resume(run.id, "more")
        await crew.manager.wait(run.id, 5)
        again = crew.manager.resume(run.id, "more")
        await crew.manager.wait(run.id, 5)
        assert (again.id, again.attempt, again.status) == (run.id, 2, Status.COMPLETED)


async def test_forgotten_run_is_gone():
    async with Crew({"slow": [SLOW]}) as crew:
        run = crew.spawn()
        assert not crew.manager.forget(run.id)
        await crew.manager.wait(run.id, 5)
        assert (crew.manager.forget(run.id), crew.manager.find(run.id), crew.manager.list_runs()) == (True, None, [])


async def test_thousand_runs_finish_once():
    async with Crew({"slow": [{"text": "done"}]}, max_concurrent=100, max_spawns=1000) as crew:
        runs = [crew.spawn() for _ in range(1000)]
        for run in runs:
            assert await crew.manager.wait(run.id, 20)
        assert len(crew.events.of(RunQueued)) == len(crew.events.of(RunFinished)) == 1000

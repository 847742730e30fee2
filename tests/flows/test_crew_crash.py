import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.crew_crash import LANES, sweep
from bench.crew_oracle import (
    find_bad_fires,
    find_bad_notices,
    find_lost_of_crew,
    find_lost_work,
    find_repeated,
    find_unsettled,
    read_lives,
)
from retinue.core.errors import RetinueError
from retinue.core.events import Event, RunFinished, RunQueued, RunRead, RunStarted, ToolFinished
from retinue.core.messages import TextContent, ToolResultMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.engine.backend import LocalBackend
from retinue.engine.clock import SystemClock, make_uuid
from retinue.engine.journal import CREW, RECORD
from retinue.engine.manager import Manager
from retinue.engine.notify import CUSTOM_TYPE
from retinue.engine.recovery import read_remains
from retinue.engine.request import RunRequest, store_request
from retinue.engine.runner import LiveRun
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.surfaces.fleet.records import LifecycleRecords
from tests.run_setup import build_setup

SAMPLE = 1
REQUEST = store_request(RunRequest(agent="a", task="child-00", description="d", surface="fleet"))
DONE = Outcome(Status.COMPLETED, Reason.DONE, "done")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(SAMPLE))
def test_killed_crew_is_brought_to_its_end(part: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    assert sweep(1, seed).all == [], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_killed_crews_end_well() -> None:
    seed = random.SystemRandom().randrange(2**32)
    found = sweep(500, seed, lanes=LANES)
    assert found.all == [], f"seed {seed}"
    assert min(found.landed, found.interrupted, found.requeued, found.saved, found.fired) > 300


def queued(run_id: str, *, parent_id: str = "old", depth: int = 1) -> RunQueued:
    run = Run(id=run_id, parent_id=parent_id, depth=depth, agent="a", description="d")
    return RunQueued(run_id=run_id, run=run, request=REQUEST)


def open_main(path: Path | None = None) -> LiveRun:
    clock = SystemClock()
    session = Session.create(cwd="/", directory=None, path=path, clock=clock, new_id=make_uuid)
    return LiveRun(build_setup("new", Path("/"), ScriptedModel(parse_script([{"text": "."}]))), session, clock=clock)


class Waiting:
    def find_grant(self, run_id: str) -> None:
        return None

    @asynccontextmanager
    async def open(self, run: Run, request: RunRequest, parent: LiveRun) -> AsyncIterator[LiveRun]:
        live = open_main()
        live.change(run_id=run.id)
        yield live


async def recover(main: LiveRun, *events: Event) -> tuple[Manager, list[Run]]:
    """A manager that has taken over these events, and what it wants told."""
    for event in events:
        main.session.append_custom(CREW, msgspec.to_builtins(event))
    async with LocalBackend() as backend:
        manager = Manager(main, Waiting(), backend, clock=SystemClock(), new_id=make_uuid)
        untold = manager.recover(read_remains(main.session.customs(CREW)))
        for run in manager.list_runs():
            await manager.wait(run.id)
    return manager, untold


async def test_recovered_runs_belong_to_this_main_agent() -> None:
    manager, untold = await recover(open_main(), queued("a"), RunStarted(run_id="a"))
    assert [(run.parent_id, run.status) for run in manager.children("new")] == [("new", Status.INTERRUPTED)]
    assert untold == manager.children("new")


async def test_unbegun_run_waits_without_a_past() -> None:
    again = msgspec.structs.replace(queued("a"), run=msgspec.structs.replace(queued("a").run, attempt=2))
    unbegun = RunFinished(run_id="a", outcome=msgspec.structs.replace(DONE, is_unbegun=True))
    remains = read_remains(
        msgspec.to_builtins(event) for event in (queued("a"), RunStarted(run_id="a", at_ms=5), unbegun, again)
    )
    run = remains.runs["a"]
    assert (run.status, run.attempt, run.started_ms) == (Status.QUEUED, 2, 0)


async def test_queued_run_of_dead_run_is_interrupted() -> None:
    manager, _ = await recover(
        open_main(), queued("a"), RunStarted(run_id="a"), queued("b", parent_id="a", depth=2), queued("c")
    )
    assert {run.id: run.status for run in manager.list_runs()} == {
        "a": Status.INTERRUPTED,
        "b": Status.INTERRUPTED,
        "c": Status.COMPLETED,
    }


class Returning(Waiting):
    """Brings runs back whose task a test wants; `a` stays away when `is_broken`."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.order: list[str] = []
        self._is_broken = is_broken

    @asynccontextmanager
    async def open(self, run: Run, request: RunRequest, parent: LiveRun) -> AsyncIterator[LiveRun]:
        self.order.append(f"{run.id} below {parent.setup.run_id}")
        if self._is_broken:
            raise RetinueError("it stays away")
        async with super().open(run, request, parent) as live:
            yield live


def tell_family() -> list[Event]:
    """A run, one below it that works, and one below it that waits."""
    begun = [RunStarted(run_id="a"), RunStarted(run_id="b")]
    return [queued("a"), queued("b", parent_id="a", depth=2), queued("c", parent_id="a", depth=2), *begun]


class LastingBackend(LocalBackend):
    def goes_on(self, run: Run, request: RunRequest) -> bool:
        return True


async def bring_back(builder: Returning) -> Manager:
    main = open_main()
    for event in tell_family():
        main.session.append_custom(CREW, msgspec.to_builtins(event))
    async with LastingBackend() as backend:
        manager = Manager(main, builder, backend, clock=SystemClock(), new_id=make_uuid)
        manager.recover(read_remains(main.session.customs(CREW)))
        for run in manager.list_runs():
            assert await manager.wait(run.id, 10)
    return manager


async def test_runs_come_back_after_their_parent() -> None:
    builder = Returning()
    manager = await bring_back(builder)
    assert builder.order == ["a below new", "b below a", "c below a"]
    assert {run.status for run in manager.list_runs()} == {Status.COMPLETED}


async def test_nothing_comes_back_without_its_parent() -> None:
    builder = Returning(is_broken=True)
    manager = await bring_back(builder)
    assert builder.order == ["a below new"]
    statuses = {run.id: run.status for run in manager.list_runs()}
    assert statuses == {"a": Status.FAILED, "b": Status.INTERRUPTED, "c": Status.STOPPED}


async def test_told_end_is_not_told_again() -> None:
    main, ends = open_main(), [RunFinished(run_id=name, outcome=DONE) for name in "abc"]
    main.session.append_custom_message(
        CUSTOM_TYPE, "said", details={"id": "a", "attempt": 1, "others": [{"id": "b", "attempt": 1}]}
    )
    _, untold = await recover(main, queued("a"), queued("b"), queued("c"), *ends)
    assert [run.id for run in untold] == ["c"]


async def test_end_told_to_child_is_found(tmp_path: Path) -> None:
    main = open_main(tmp_path / "main.jsonl")
    assert main.session.tree is not None
    path = main.session.tree.child_path("a")
    child = Session.create(
        cwd="/", directory=None, path=path, clock=SystemClock(), new_id=make_uuid, tree=main.session.tree
    )
    child.append_custom_message(CUSTOM_TYPE, "said", details={"id": "b", "attempt": 1})
    child.close()
    events = [queued("a"), RunStarted(run_id="a")]
    for name in "bc":
        events += [queued(name, parent_id="a", depth=2), RunFinished(run_id=name, outcome=DONE)]
    _, untold = await recover(main, *events)
    main.session.close()
    assert [run.id for run in untold] == ["a", "c"]


async def test_missing_record_is_written() -> None:
    main = open_main()
    await recover(main, queued("a"), RunFinished(run_id="a", outcome=DONE), queued("b"), RunStarted(run_id="b"))
    records = [(record["id"], record["type"], record["status"]) for record in main.session.customs(RECORD)]
    assert records == [("a", "a", "completed"), ("b", "a", "interrupted")]


async def test_result_counts_as_read_when_recorded() -> None:
    main = open_main()
    manager, _ = await recover(main, queued("a"), RunFinished(run_id="a", outcome=DONE))
    manager.read("a", by_call="call")
    assert [run.is_read for run in manager.list_runs()] == [True]
    assert not read_remains(main.session.customs(CREW)).runs["a"].is_read
    result = ToolResultMessage("call", "get_subagent_result", [TextContent("done")], is_error=False, timestamp=1)
    main.bus.publish(ToolFinished(run_id="new", result=result))
    assert read_remains(main.session.customs(CREW)).runs["a"].is_read


async def test_life_of_recovered_run_is_told() -> None:
    manager, _ = await recover(open_main(), queued("a"))
    life = LifecycleRecords(manager.find)
    record = life(RunFinished(run_id="a", outcome=DONE))
    assert record is not None and (record["type"], record["id"]) == ("subagents:completed", "a")
    assert life(RunFinished(run_id="stranger", outcome=DONE)) is None


def write_crew(*events: Event) -> list[dict[str, Any]]:
    return [{"type": "custom", "customType": CREW, "data": msgspec.to_builtins(event)} for event in events]


def test_damage_is_noticed(tmp_path: Path) -> None:
    done = Counter({"00-1": 2})
    end = RunFinished(run_id="a", outcome=DONE)
    entries = write_crew(queued("a"), RunStarted(run_id="a"), end, end, queued("b"), queued("c"), RunRead(run_id="c"))
    notice = {"type": "custom_message", "customType": CUSTOM_TYPE, "details": {"id": "a", "others": [{"id": "a"}]}}
    lives = read_lives([*entries, notice])
    records = [{"type": "subagents:created", "id": "a"}, {"type": "subagents:started", "id": "b"}]
    assert Counter(
        unsettled=len(list(find_unsettled(lives))),
        notices=len(list(find_bad_notices(lives, [*entries, notice]))),
        repeated=len(list(find_repeated(lives, done))),
        lost=len(find_lost_of_crew(records, entries, tmp_path / "none.jsonl")),
    ) == Counter(unsettled=3, notices=2, repeated=1, lost=1)


def test_lost_work_is_noticed() -> None:
    end = RunFinished(run_id="a", outcome=msgspec.structs.replace(DONE, branch="pi-agent-a"))
    lives = read_lives(write_crew(queued("a"), end, queued("b"), RunFinished(run_id="b", outcome=DONE)))
    done = Counter({"00-1": 1, "00-2": 1, "01-1": 1})
    assert list(find_lost_work(lives, done, {"work-00-1.txt"}, {"main"})) == [
        "the work of 00-2 is in no branch",
        "child-00 names the branch pi-agent-a, which is not there",
        "child-00 is completed and names no branch",
    ]


def test_bad_fires_are_noticed() -> None:
    request = {**REQUEST, "task": "soon"}
    runs = [msgspec.structs.replace(queued(name), request=request) for name in "ab"]
    records = [
        {"type": "subagents:scheduled", "change": "added", "job": {"id": "j", "name": "soon"}},
        {"type": "subagents:scheduled", "change": "fired", "agentId": "c", "name": "soon"},
    ]
    assert list(find_bad_fires(records, [], read_lives(write_crew(*runs)), 0)) == [
        "the job soon is not kept",
        "the run c of soon is not on record",
        "soon was due 1 times and has 2 runs",
    ]

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from retinue.core.messages import CustomMessage
from retinue.core.run import Join, Run, Status
from retinue.engine.notify import BATCH_S, GROUP_S, HOLD_S, STRAGGLER_S, Notifier, list_told
from retinue.testing.clock import FakeClock


class Crew:
    """Runs that begin and end when a test says so, and what their parents are told, with the time of it."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock = FakeClock()
        self.runs: dict[str, Run] = {}
        self.told: list[tuple[float, str, bool, bool]] = []
        self.started = 0
        self.woken: list[str] = []
        self._group = group
        self.notifier = Notifier(self, self.clock, self.list_siblings)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.started += 1
        self._group.create_task(work)

    def render(self, runs: list[Run], *, is_group: bool, is_partial: bool) -> CustomMessage:
        names = "".join(run.id for run in runs)
        self.told.append((round(self.clock.steady_s(), 3), names, is_group, is_partial))
        return CustomMessage("t", names, True, 0)

    def deliver(self, parent_id: str, message: CustomMessage | None) -> None:
        self.woken.append(parent_id)

    def list_siblings(self, run: Run) -> list[Run]:
        others = [each for each in self.runs.values() if each.parent_id == run.parent_id and each is not run]
        return [each for each in others if not each.status.is_final]

    def queue(self, names: str, join: Join = "smart", **fields: Any) -> None:
        for name in names:
            fields = {"parent_id": "p", "depth": 1, "status": Status.RUNNING, **fields}
            run = self.runs[name] = Run(id=name, agent="a", description="d", join=join, **fields)
            self.notifier.queued(run)

    def end(self, names: str) -> None:
        for name in names:
            self.runs[name].status = Status.COMPLETED
            self.notifier.finished(self.runs[name])

    async def wait(self, seconds: float) -> None:
        await self.clock.advance(seconds)


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    async with asyncio.TaskGroup() as group:
        made = Crew(group)
        yield made
        await made.wait(10 * GROUP_S)


async def test_one_is_told_after_a_moment(crew: Crew) -> None:
    crew.queue("a", "async")
    crew.end("a")
    await crew.wait(1)
    assert crew.told == [(HOLD_S, "a", False, False)]


async def test_alone_in_its_batch_is_told_alone(crew: Crew) -> None:
    crew.queue("a")
    crew.end("a")
    await crew.wait(1)
    crew.queue("b")
    await crew.wait(5)
    crew.end("b")
    await crew.wait(1)
    assert crew.told == [(round(BATCH_S + HOLD_S, 3), "a", False, False), (6 + HOLD_S, "b", False, False)]


async def test_started_one_after_the_other_belong_together(crew: Crew) -> None:
    for name in "abc":
        crew.queue(name)
        await crew.wait(BATCH_S)
    await crew.wait(1)
    crew.queue("d")
    for name in "adbc":
        crew.end(name)
        await crew.wait(1)
    assert [row[1:] for row in crew.told] == [("d", False, False), ("abc", True, False)]


async def test_started_in_the_moment_a_batch_is_closed(crew: Crew) -> None:
    crew.queue("a")
    crew.end("a")
    await crew.wait(BATCH_S)
    crew.queue("b")
    crew.end("b")
    await crew.wait(1)
    assert [row[1] for row in crew.told] == ["a", "b"]


@pytest.mark.parametrize("join", ["smart", "group"])
async def test_group_waits_for_others_and_less_for_the_late(crew: Crew, join: Join) -> None:
    crew.queue("abcd", join)
    await crew.wait(1)
    crew.end("a")
    await crew.wait(GROUP_S + 4)
    crew.end("b")
    await crew.wait(STRAGGLER_S + 5)
    crew.end("cd")
    await crew.wait(1)
    first_s = 1 + GROUP_S
    second_s = first_s + 4 + STRAGGLER_S
    assert crew.told == [
        (first_s + HOLD_S, "a", True, True),
        (second_s + HOLD_S, "b", True, True),
        (second_s + 5 + HOLD_S, "cd", True, False),
    ]


async def test_group_that_is_complete_is_told_at_once(crew: Crew) -> None:
    crew.queue("ab", "group")
    crew.queue("c", "async")
    crew.queue("d", "group", is_background=False)
    crew.queue("e", "group", parent_id="q")
    await crew.wait(1)
    crew.end("ab")
    await crew.wait(GROUP_S * 2)
    crew.end("cde")
    await crew.wait(1)
    end_s = 1 + GROUP_S * 2 + HOLD_S
    assert crew.told == [(1 + HOLD_S, "ab", True, False), (end_s, "c", False, False), (end_s, "e", False, False)]
    assert crew.woken == ["p", "p", "q"]


async def test_old_timer_leaves_the_late_alone(crew: Crew) -> None:
    crew.queue("abc", "group")
    crew.end("a")
    await crew.wait(GROUP_S - 1)
    crew.end("b")
    await crew.wait(2)
    crew.end("c")
    await crew.wait(GROUP_S)
    assert [row[1:] for row in crew.told] == [("ab", True, True), ("c", True, False)]


@pytest.mark.parametrize("fields", [{"is_background": False}, {"is_guest": True}])
async def test_others_are_in_no_batch(crew: Crew, fields: dict[str, bool]) -> None:
    crew.queue("a")
    crew.queue("b", **fields)
    crew.end("a")
    await crew.wait(1)
    assert [row[1:] for row in crew.told] == [("a", False, False)]


async def test_runs_of_an_earlier_process_are_told_at_once(crew: Crew) -> None:
    crew.queue("ab", "async")
    crew.queue("cd", "smart")
    crew.queue("e", "smart", parent_id="q")
    crew.notifier.recovered(crew.runs.values())
    assert crew.told == [(0, "a", False, False), (0, "b", False, False), (0, "cd", True, False), (0, "e", False, False)]
    assert not crew.notifier.expects("p")


async def test_others_work_while_many_are_told(crew: Crew) -> None:
    seen = []

    async def look() -> None:
        while len(crew.told) < 9:
            seen.append(len(crew.told))
            await asyncio.sleep(0)

    crew.queue("abcdefghi", "async")
    crew.end("abcdefghi")
    crew.start(look())
    await crew.wait(1)
    assert set(range(1, 9)) <= set(seen)


async def test_closed_notifier_starts_nothing(crew: Crew) -> None:
    crew.queue("ab")
    crew.end("a")
    before = crew.started
    crew.notifier.close()
    await crew.wait(1)
    crew.end("b")
    assert (crew.started, crew.told, crew.notifier.expects("p")) == (before, [], False)


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"id": "a", "attempt": 2}, [("a", 2)]),
        ({"id": "a", "others": [{"id": "b", "attempt": 3}, {"id": 7}, "c", {}]}, [("a", 1), ("b", 3)]),
        ({"id": "a", "others": "b"}, [("a", 1)]),
        ({"others": [{"id": "b"}]}, [("b", 1)]),
        (None, []),
        ("a", []),
    ],
)
def test_report_tells_of_these_ends(details: Any, told: list[tuple[str, int]]) -> None:
    assert list(list_told(details)) == told

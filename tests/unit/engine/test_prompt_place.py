import asyncio
import time
from pathlib import Path

from msgspec import UNSET

from retinue.core.messages import SystemMessage
from retinue.core.model import ToolSpec
from retinue.engine.clock import SystemClock
from retinue.engine.prompt import FRESH_S, Place, PlaceCache, declare_change
from retinue.testing.clock import FakeClock


class Looks:
    def __init__(self):
        self.clock = FakeClock()
        self.seen = []
        self.gate = asyncio.Event()
        self.surveys = PlaceCache(self.look, self.clock)

    async def look(self, cwd):
        self.seen.append(str(cwd))
        await self.gate.wait()
        return Place(str(cwd), f"branch {len(self.seen)}")


async def test_simultaneous_runs_look_once():
    looks = Looks()
    looks.gate.set()
    places = await asyncio.gather(*(looks.surveys.find(Path(name)) for name in ("/a", "/a", "/b", "/a")))
    assert [place.cwd for place in places] == ["/a", "/a", "/b", "/a"]
    assert looks.seen == ["/a", "/b"]


async def test_old_sight_is_renewed():
    looks = Looks()
    looks.gate.set()
    await looks.surveys.find(Path("/a"))
    await looks.clock.advance(FRESH_S)
    await looks.surveys.find(Path("/a"))
    assert looks.seen == ["/a", "/a"]


async def test_stopped_look_is_taken_over():
    looks = Looks()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(looks.surveys.find(Path("/a")))
        second = group.create_task(looks.surveys.find(Path("/a")))
        await asyncio.sleep(0)
        first.cancel()
        looks.gate.set()
    assert (second.result().branch, looks.seen) == ("branch 2", ["/a", "/a"])


READ, WRITE = (ToolSpec(name, "d", {"type": "object"}) for name in ("read", "write"))


def test_only_what_has_changed_is_declared() -> None:
    before, after = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "new", "d": "4"}
    added = [{"name": "write", "description": "d", "parameters": {"type": "object"}}]
    found = declare_change(before, after, ["read", "bash"], [READ, WRITE], 7)
    assert found == SystemMessage("", 7, {"b": "new", "d": "4", "c": None}, added, [{"name": "bash"}])


def test_same_prompt_and_tools_declare_nothing() -> None:
    assert declare_change({"a": "1"}, {"a": "1"}, ["read"], [READ], 7) is None
    assert declare_change({"a": "1"}, {}, ["read"], [READ], 7) == SystemMessage("", 7, {"a": None}, UNSET, UNSET)


def test_clock_counts_milliseconds() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 60_000

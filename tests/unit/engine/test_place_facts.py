import asyncio
from pathlib import Path

from retinue.engine.prompt import FRESH_S, Place, PlaceCache
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

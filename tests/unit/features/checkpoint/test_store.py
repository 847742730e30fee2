import asyncio
from pathlib import Path

import pytest

from retinue.features.checkpoint.records import Checkpoint
from retinue.features.checkpoint.store import CheckpointStore
from retinue.testing import make_repo


class CountedStore(CheckpointStore):
    """Counts the trees; the first one waits until it may go on."""

    def __init__(self, top, own_dir):
        super().__init__(top, own_dir)
        self.count, self.go, self.is_busy = 0, asyncio.Event(), asyncio.Event()
        plain = self.trees.take

        async def take():
            self.count += 1
            if self.count == 1:
                taken = await plain()
                self.is_busy.set()
                await self.go.wait()
                return taken
            return await plain()

        self.trees.take = take


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    make_repo(folder, {"a.txt": "a\n"})
    return folder


async def begin(store):
    """Take a first checkpoint that is not ready before `store.go` is set, with ten that wait for the next one."""
    first = asyncio.create_task(store.take("call", run="r", opens="r/1"))
    await store.is_busy.wait()
    Path(store.top, "new").touch()
    return first, [asyncio.create_task(store.take("call", run=f"{n}", opens=f"{n}/1")) for n in range(10)]


async def test_requests_share_the_next_checkpoint(work, tmp_path):
    store = CountedStore(work, tmp_path / "own")
    first, others = await begin(store)
    await asyncio.sleep(0)
    store.go.set()
    taken = await asyncio.gather(first, *others)
    assert store.count == 2
    assert len({each.tree for each in taken[1:]}) == 1 and taken[0].tree != taken[1].tree
    assert await store.trees.list_files(taken[1].tree, ["new"]) == {"new"}
    assert [each.opens for each in store.read_records()[-10:]] == [f"{n}/1" for n in range(10)]


async def test_cancelled_requests_leave_nothing_and_stop_nobody(work, tmp_path):
    store = CountedStore(work, tmp_path / "own")
    first, others = await begin(store)
    await asyncio.sleep(0)
    first.cancel()
    others[3].cancel()
    done = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(each).__name__ for each in done].count("CancelledError") == 2
    opened = {each.opens for each in store.read_records() if isinstance(each, Checkpoint)}
    assert opened == {f"{n}/1" for n in range(10) if n != 3}


async def test_failed_checkpoint_is_told_to_all_who_waited(work, tmp_path):
    store = CountedStore(work, tmp_path / "own")
    first, others = await begin(store)
    await asyncio.sleep(0)
    (work / ".git").rename(work / "git")
    store.go.set()
    done = await asyncio.gather(first, *others, return_exceptions=True)
    assert {type(each).__name__ for each in done[1:]} <= {"RetinueError", "FileNotFoundError"}, done
    (work / "git").rename(work / ".git")
    assert (await store.take("call")).tree

import asyncio

from retinue.features.checkpoint.feature import Checkpoints
from retinue.features.checkpoint.store import CheckpointStore


class CountedStore(CheckpointStore):
    writes = 0

    def append(self, *records):
        self.writes += 1
        super().append(*records)


def open_checkpoints(tmp_path):
    return Checkpoints(CountedStore(tmp_path / "work", tmp_path / "own"), "session", "main", print)


async def test_runs_that_start_together_are_noted_at_once(tmp_path):
    checkpoints = open_checkpoints(tmp_path)
    store, known = checkpoints.store, list[int]()

    async def begin(number):
        await checkpoints.note_run(f"run{number}", "agent", is_here=True, may_change=True)
        known.append(len(store.read_records()))

    await asyncio.gather(*map(begin, range(5)))
    assert (store.writes, known) == (1, [5] * 5)
    assert store.list_busy() == [f"run{number}" for number in range(5)]


async def test_cancelled_run_takes_no_note_with_it(tmp_path):
    checkpoints = open_checkpoints(tmp_path)
    notes = [checkpoints.note_run(name, "agent", is_here=True, may_change=True) for name in "ab"]
    tasks = [asyncio.ensure_future(note) for note in notes]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert [record.run for record in checkpoints.store.read_records()] == ["a", "b"]

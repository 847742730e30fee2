"""A process with copies is killed at random moments; the next one finds every byte, and tidies up."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from retinue.features.worktree.feature import Leftover, recover_leftovers
from retinue.features.worktree.records import CopyRecord, Records
from retinue.features.worktree.saved_work import KeptCopy
from tests.flows.worktree_world import World, git

DRIVER = """
import asyncio, os, sys
from pathlib import Path
from retinue.features.worktree.copies import CopyRequest, create_copy
from retinue.features.worktree.saved_work import keep_work
from retinue.features.worktree.records import Records

repo, tmp, records, life = Path(sys.argv[1]), Path(sys.argv[2]), Records(Path(sys.argv[3])), sys.argv[4]

async def work(number):
    for turn in range(1000):
        name = f"l{life}w{number}t{turn}"
        copy = await create_copy(CopyRequest(name, repo, "work"), records, tmp=tmp)
        for step in range(3):
            (copy.root / f"{name}s{step}").write_text(name * 50)
            os.write(1, f"{name}s{step}\\n".encode())
            await asyncio.sleep(0.001)
        await keep_work(copy.record, records)

async def main():
    os.write(1, b"ready\\n")
    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(work(number))

asyncio.run(main())
"""


def kill_randomly(world: World, life: int, dice: random.Random) -> list[str]:
    """What a process had written to its copies when it was killed."""
    command = [sys.executable, "-c", DRIVER, str(world.repo), str(world.tmp), str(world.records.directory), str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(dice.random() * 0.4)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        return process.stdout.read().decode().split("\n")[:-1]


async def kill_and_recover(world: World, kills: int, seed: int) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    written = []
    for life in range(kills):
        written += kill_randomly(world, life, dice)
        left = await recover_leftovers(world.records)
        assert [each for each in left if each.kept.path] == []
        assert (world.left, os.listdir(world.records.directory) if life else []) == ([], [])
    lost = [name for name in written if world.show(f"pi-agent-{name[:-2]}", name) != name[:-2] * 50]
    assert (written != [], lost) == (True, [])
    # One branch for each run that wrote something, which it may not have come to tell, and none beside.
    names = set(world.branches) - {"main"}
    empty = [name for name in names if git(world.repo, "diff", "--name-only", "main", name) == ""]
    assert (empty, [name for name in names if not re.fullmatch(r"pi-agent-l\d+w\dt\d+", name)]) == ([], [])
    assert git(world.repo, "fsck", "--connectivity-only", "--no-dangling") == ""


async def test_killed_work_is_recovered(tmp_path: Path) -> None:
    await kill_and_recover(World.make(tmp_path), 5, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_300_kills_lose_nothing(tmp_path: Path) -> None:
    await kill_and_recover(World.make(tmp_path), 300, seed=7)


RECOVER = """
import asyncio, sys
from pathlib import Path
from retinue.features.worktree.feature import recover_leftovers
from retinue.features.worktree.records import Records
print("ready", flush=True)
asyncio.run(recover_leftovers(Records(Path(sys.argv[1]))))
"""


async def test_killed_recovery_is_repeated(tmp_path: Path) -> None:
    world, dice = World.make(tmp_path), random.Random(3)
    written = [name for life in range(3) for name in kill_randomly(world, life, dice)]
    for _ in range(8):
        command = [sys.executable, "-c", RECOVER, str(world.records.directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(dice.random() * 0.06)
            process.kill()
    await recover_leftovers(world.records)
    lost = [name for name in written if world.show(f"pi-agent-{name[:-2]}", name) != name[:-2] * 50]
    assert (lost, world.left) == ([], [])


@pytest.mark.attack("G12")
async def test_living_owners_are_left_alone(tmp_path: Path) -> None:
    world = World.make(tmp_path)
    copy = await world.create()
    (copy.root / "a.txt").write_text("at work\n")
    other = Records(world.records.directory)
    assert (await recover_leftovers(other), await recover_leftovers(world.records)) == ([], [])
    assert ((copy.root / "a.txt").read_text(), world.branches) == ("at work\n", ["main"])
    world.records.close()
    assert await recover_leftovers(other) == [Leftover("r1", str(world.repo), KeptCopy("pi-agent-r1"))]


async def test_two_starts_recover_once(tmp_path: Path) -> None:
    world = World.make(tmp_path)
    for number in range(6):
        copy = await world.create(f"r{number}")
        (copy.root / "new.txt").write_text("new\n")
    world.records.close()
    starts = [Records(world.records.directory) for _ in range(3)]
    found = await asyncio.gather(*(recover_leftovers(each) for each in starts))
    assert sorted(left.run_id for each in found for left in each) == [f"r{number}" for number in range(6)]
    assert (world.branches, world.left) == (["main", *(f"pi-agent-r{number}" for number in range(6))], [])


async def test_copy_of_gone_repository_stays(tmp_path: Path) -> None:
    world = World.make(tmp_path)
    copy = await world.create()
    (copy.root / "a.txt").write_text("precious\n")
    world.repo.rename(tmp_path / "moved")
    world.records.close()
    for _ in range(2):
        [left] = await recover_leftovers(Records(world.records.directory))
        assert (left.kept.path, left.kept.problem.startswith("its repository ")) == (str(copy.root), True)
    (tmp_path / "moved").rename(world.repo)
    [left] = await recover_leftovers(Records(world.records.directory))
    assert (left.kept, world.show("pi-agent-r1", "a.txt"), world.left) == (KeptCopy("pi-agent-r1"), "precious", [])


async def test_thousand_records_are_fine(tmp_path: Path) -> None:
    directory = tmp_path / "records"
    living, dead = Records(directory), Records(directory)
    directory.mkdir()
    for number in range(1000):
        owner = dead if number % 2 else living
        gone = str(tmp_path / "gone")
        record = CopyRecord(run_id=f"r{number}", state="live", path=gone, top=gone, common=gone, base="0" * 40)
        (directory / f"r{number}.json").write_bytes(msgspec.json.encode(owner.claim(record)))
    (directory / "broken.json").write_text("{")
    dead.close()
    began_s = time.monotonic()
    assert len(await recover_leftovers(Records(directory))) == 500
    assert (time.monotonic() - began_s < 3, len(living.list_all())) == (True, 500)

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from retinue.core.run import Status

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


def count_claims(world):
    return sum(epoch for (epoch,) in world.ask("SELECT epoch FROM retinue.runs"))


def was_said(world, text):
    return any(text in str(request.json) for request in world.server.requests)


async def test_run_works_on_worker(world):
    world.play(world.act(1, after="echo new > made.txt"), DONE)
    world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Make a file.")
        outcome = await handle.wait()
        run = handle.run
    shown = subprocess.run(
        ["git", "show", f"{outcome.branch}:made.txt"], cwd=world.project, capture_output=True, text=True, check=True
    )
    assert (outcome.status, outcome.text, outcome.turns) == (Status.COMPLETED, "All done.", 2)
    assert (shown.stdout, (world.project / "made.txt").exists()) == ("new\n", False)
    assert run.worker
    assert "Make a file." in Path(outcome.session_file).read_text()


async def test_dead_worker_is_replaced(world):
    world.play(world.act(1), world.act(2, after="sleep 30"), DONE)
    first = world.start_worker()
    world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: len(world.effects) == 2, "the second call acts")
        [(owner,)] = world.ask("SELECT owner FROM retinue.runs")
        victim = first if f"-{first.pid}-" in owner else world._workers[1]
        world.kill(victim)
        began_s = asyncio.get_running_loop().time()
        await wait_for(world, lambda: count_claims(world) > 1, "the loss is noticed")
        noticed_s = asyncio.get_running_loop().time() - began_s
        outcome = await handle.wait()
    assert (outcome.status, outcome.turns, len(set(world.effects))) == (Status.COMPLETED, 3, len(world.effects))
    assert was_said(world, "interrupted, effect unknown")
    assert noticed_s < 10  # two seconds on a quiet machine: `make bench`


@pytest.mark.slow
async def test_moved_run_learns_its_new_place(world):
    world.play(*(world.act(turn, after="pwd; sleep 60") for turn in (1, 2)), world.act(3, after="pwd"), DONE)
    handle = None
    async with world.open_face() as face:
        for turn in (1, 2):
            worker = world.start_worker()
            handle = handle or await face.spawn("general-purpose", "Work.")
            await wait_for(world, lambda turn=turn: len(world.effects) == turn, f"call {turn} acts")
            world.kill(worker)
        world.start_worker()
        outcome = await handle.wait()
    places = [path for (path,) in world.ask("SELECT path FROM retinue.records WHERE kind = 'place' ORDER BY seq")]
    first, *_, last = [str(request.json) for request in world.server.requests]
    assert (outcome.status, len(set(places)), "Before, you worked" in first) == (Status.COMPLETED, 3, False)
    assert "Before, you worked in {} and in {}. ".format(*places[:2]) in last


@pytest.mark.slow
async def test_changed_extension_counts_for_next_run(world, plain):
    world.play(world.act(1), DONE)
    theirs = plain()
    extension = Path(theirs["PI_CODING_AGENT_DIR"]) / "extensions" / "watch.py"
    extension.parent.mkdir()
    world.start_worker(**theirs)
    async with world.open_face() as face:
        for word in ("one", "two"):
            extension.write_text(WATCH.format(word=word))
            await (await face.spawn("general-purpose", f"Work {word}.")).wait()
    assert [was_said(world, f"seen by {word}") for word in ("one", "two")] == [True, True]


WATCH = """
from retinue.core.tool import ToolResult

class Watch:
    async def after(self, call, tool, result):
        return ToolResult.of("seen by {word}")

def register(registrar):
    registrar.hook(Watch())
"""


async def test_run_hears_and_stops(world):
    slow = world.act(1, after="sleep 2")
    world.play(slow, {"calls": [{"name": "bash", "arguments": {"command": "sleep 60"}}]}, DONE)
    world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        await handle.steer("Mind the gap.")
        await wait_for(world, lambda: was_said(world, "Mind the gap."), "heard")
        await handle.stop()
        outcome = await handle.wait()
    assert outcome.status is Status.STOPPED
    assert world.ask("SELECT finished IS NOT NULL FROM retinue.runs") == [(True,)]


async def test_waiting_run_is_withdrawn(world):
    world.play(DONE)
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.has_runs(), "it waits")
        await handle.stop()
        outcome = await handle.wait()
    worker = world.start_worker()
    await asyncio.sleep(0.5)
    assert (outcome.status, world.ask("SELECT epoch FROM retinue.runs")) == (Status.STOPPED, [(0,)])
    assert worker.poll() is None


@pytest.mark.slow
async def test_run_is_resumed_elsewhere(world):
    world.play(world.act(1, after="echo one > made.txt"), DONE, world.act(2, after="cat made.txt"), DONE)
    first = world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Begin.")
        before = await handle.wait()
        world.kill(first)
        world.start_worker()
        again = await (await face.resume(handle.id, "Go on.")).wait()
    told = Path(again.session_file).read_text()
    assert (before.status, again.status) == (Status.COMPLETED, Status.COMPLETED)
    assert "one\\n" in told
    assert len(world.effects) == 2


async def test_sleeping_worker_does_no_harm(world):
    world.play(world.act(1, after="sleep 1"), world.act(2, after="sleep 1"), DONE)
    world.start_worker()
    world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        [(owner,)] = world.ask("SELECT owner FROM retinue.runs")
        number = 0 if f"-{world._workers[0].pid}-" in owner else 1
        os.kill(world._workers[number].pid, signal.SIGSTOP)
        outcome = await handle.wait()
        os.kill(world._workers[number].pid, signal.SIGCONT)
        await wait_for(world, lambda: "it starts again" in world.read_log(number), "it notices")
    assert outcome.status is Status.COMPLETED
    assert len(set(world.effects)) == len(world.effects)
    assert world.ask("SELECT count(*) FROM retinue.runs WHERE outcome IS NOT NULL") == [(1,)]


async def test_database_may_go_away(world, postgres):
    world.play(world.act(1, after="sleep 1"), world.act(2), world.act(3), DONE)
    world.start_worker()
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        await asyncio.to_thread(postgres.stop)
        await asyncio.sleep(2)
        await asyncio.to_thread(postgres.start)
        outcome = await handle.wait()
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 3)


def test_crashed_worker_shows_where_it_was(world):
    world.play(DONE)
    worker = world.start_worker()
    worker.send_signal(signal.SIGSEGV)
    assert (worker.wait(10), "Segmentation fault" in world.read_log(0)) == (-signal.SIGSEGV, True)


async def test_budget_holds_over_workers(world):
    world.settings["budget"] = {"tokens": 60_000}
    reply = world.act(1, usage={"input": 5_000, "output": 1_000})
    world.play(*[reply] * 30, DONE)
    world.start_worker()
    world.start_worker()
    async with world.open_face() as face:
        handles = [await face.spawn("general-purpose", f"Work {number}.") for number in range(6)]
        outcomes = [await handle.wait() for handle in handles]
    [(limit, spent, held)] = world.ask("SELECT tokens, spent_tokens, held_tokens FROM retinue.leases WHERE tokens > 0")
    assert (limit, held) == (60_000, 0)
    assert 0 < spent <= limit
    assert {outcome.reason for outcome in outcomes} == {"budget"}


async def test_held_budget_is_waited_for(world):
    world.settings["budget"] = {"tokens": 60_000}
    world.play({"text": "Done.", "usage": {"input": 500, "output": 10}, "delay_ms": 200})
    world.start_worker()
    async with world.open_face() as face:
        handles = [await face.spawn("general-purpose", f"Work {number}.") for number in range(6)]
        outcomes = [await handle.wait() for handle in handles]
    assert [outcome.text for outcome in outcomes] == ["Done."] * 6


async def test_secrets_do_not_travel(world, monkeypatch):
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary-7f3a91d2c4")
    world.play(world.act(1), DONE)
    world.start_worker()
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    dump = subprocess.run(["pg_dump", world.database], capture_output=True, text=True, check=True).stdout
    assert "retinue.records" in dump
    assert "sk-canary" not in dump
    assert "mock-key" not in dump

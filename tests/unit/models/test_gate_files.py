import asyncio
import os
import signal
import sys

from retinue.core.model import Failure, ModelInfo
from retinue.models.gate import Gates, LimitPause, name_gate
from retinue.models.gate_files import GateFiles
from retinue.models.retry import RetryPolicy
from retinue.testing.clock import FakeClock

INFO = ModelInfo("mock", "m", "mine", account="key")
GATE = name_gate(INFO)
HOLDER = """
import asyncio, sys
from pathlib import Path
from retinue.engine.clock import SystemClock
from retinue.models.gate_files import GateFiles

files = GateFiles(Path(sys.argv[1]), SystemClock())
print(asyncio.run(files.claim(sys.argv[2])), flush=True)
sys.stdin.read()
"""


class Server:
    """Refuses before each of its reset times; then it answers, and counts how many ask at the same time."""

    def __init__(self, clock, *resets_s):
        self.clock, self.start_s = clock, clock.steady_s()
        self.resets_s = resets_s
        self.refused: list[int] = []
        self.rounds: list[int] = []
        self.asking = 0

    async def reply(self):
        now_s = self.clock.steady_s() - self.start_s
        self.asking += 1
        if now_s >= self.resets_s[-1]:
            self.rounds.append(self.asking)
        await self.clock.sleep(2.0)
        self.asking -= 1
        rest_s = next((reset_s - now_s for reset_s in self.resets_s if reset_s > now_s), None)
        if rest_s is None:
            return None
        self.refused.append(sum(reset_s <= now_s for reset_s in self.resets_s))
        return Failure("rate", "limit", retryable=True, retry_after_s=rest_s - 2.0)


async def ask(gates, server):
    while True:
        passage = await gates.enter(INFO)
        try:
            failure = await server.reply()
        except asyncio.CancelledError:
            gates.give_up(passage)
            await gates.share(passage, INFO, is_known=False)
            raise
        is_refused = gates.leave(passage, INFO, failure, RetryPolicy())
        await gates.share(passage, INFO)
        if not is_refused:
            return


async def drive(clock, tasks, seconds=100_000):
    end_s = clock.steady_s() + seconds
    while clock.steady_s() < end_s and not all(task.done() for task in tasks):
        await clock.advance(0.1 if clock.steady_s() % 1000 < 30 else 10)
    return all(task.done() for task in tasks)


def open_processes(clock, folder, count):
    return [Gates(clock, GateFiles(folder, clock)) for _ in range(count)]


async def test_one_process_probes_after_each_reset(tmp_path):
    clock = FakeClock()
    server = Server(clock, 1000, 2000, 3000)
    processes = open_processes(clock, tmp_path, 4)
    first = asyncio.create_task(ask(processes[0], server))
    await clock.advance(3)
    tasks = [first, *(asyncio.create_task(ask(gates, server)) for gates in processes for _ in range(2))]
    assert await drive(clock, tasks)
    assert server.refused == [0, 1, 2]
    assert server.rounds[:3] == [1, 1, 2] and len(server.rounds) == len(tasks)
    assert all(after <= most + 1 for most, after in zip(server.rounds, server.rounds[1:], strict=False))
    assert [file.name for file in tmp_path.iterdir() if not file.suffix] == []


async def test_process_that_did_not_wait_passes_the_gate_too(tmp_path):
    clock = FakeClock()
    server = Server(clock, 1000)
    first, *others = open_processes(clock, tmp_path, 4)
    task = asyncio.create_task(ask(first, server))
    await clock.advance(3)
    task.cancel()
    await clock.advance(1100)
    assert await drive(clock, [asyncio.create_task(ask(gates, server)) for gates in others])
    assert server.rounds[:2] == [1, 1]


async def test_cancelled_probe_lets_another_process_ask(tmp_path):
    clock = FakeClock()
    server = Server(clock, 1000)
    first, second = open_processes(clock, tmp_path, 2)
    await GateFiles(tmp_path, clock).close(GATE, clock.now_ms() + 1_000_000)
    dead = asyncio.create_task(ask(first, server))
    await clock.advance(0.5)
    live = asyncio.create_task(ask(second, server))
    assert not await drive(clock, [live], 1000)
    dead.cancel()
    assert await drive(clock, [live], 20)
    assert server.rounds[0] == 1


async def test_kill_releases_a_claim(tmp_path):
    clock = FakeClock()
    files = GateFiles(tmp_path, clock)
    await files.close(GATE, 1)
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(tmp_path), GATE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert int(await holder.stdout.readline()) > 0
    refused = asyncio.create_task(files.claim(GATE))
    await clock.advance(1)
    assert await refused is None
    os.kill(holder.pid, signal.SIGKILL)
    await holder.wait()
    assert await files.claim(GATE)


async def test_caller_is_told_of_no_past_time(tmp_path):
    clock = FakeClock()
    gates = Gates(clock)
    told: list[LimitPause] = []
    gates.restore(LimitPause(GATE, "mock", clock.now_ms() + 10_000))
    await clock.advance(100)
    probe = await gates.enter(INFO)
    second = asyncio.create_task(gates.enter(INFO, told.append))
    await clock.advance(1)
    assert told == [LimitPause(GATE, "mock", clock.now_ms() - 1000)]
    gates.leave(probe, INFO, None, RetryPolicy())
    assert await second is not None


async def test_abandoned_gate_blocks_nothing(tmp_path):
    clock = FakeClock()
    gates, looks = Gates(clock), list[object]()
    gates.restore(LimitPause(GATE, "mock", clock.now_ms() + 10_000))
    gates.listen(lambda: looks.append(gates.find_pause(INFO)))
    assert gates.list_pauses()
    await clock.advance(100)
    probe = await gates.enter(INFO)
    assert gates.find_pause(INFO) is not None
    gates.give_up(probe)
    assert (gates.find_pause(INFO), gates.list_pauses(), looks) == (None, [], [None])

"""Servers that fail: at their start, in a call, again and again; each time with a reason and without a hang."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from retinue.features.mcp.pool import ServerPool
from retinue.testing.clock import FakeClock
from tests.flows.mcp_world import World, call, text_of, wait_gone


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("print('x', file=sys.stderr); sys.exit(3)", "it exited with status 3: x"),
        ("sys.exit(0)", "it exited with status 0"),
        ("os.kill(os.getpid(), 9)", "it was killed by SIGKILL"),
        ("sys.stdout.write('{\"jsonrpc\"'); sys.exit(1)", "its last message was cut off, and it exited with status 1"),
        ("VERSION = '1999-01-01'", "Unsupported protocol version from the server: 1999-01-01"),
        ("def initialize(message):\n    answer(message, {})", "its answer does not follow the protocol"),
    ],
    ids=["crash", "exit", "killed", "partial", "version", "shape"],
)
async def test_bad_start_is_told(world, extra, reason):
    world.add(extra=extra)
    async with world.open() as pool:
        assert await world.list(pool) == {}
    told = world.told[0].removeprefix("MCP server 'raw': ").replace("status 137", "SIGKILL")
    assert told.replace("it exited with SIGKILL", "it was killed by SIGKILL") == reason


async def test_server_that_closes_its_output_is_told(world):
    world.add(extra="print('bye', file=sys.stderr, flush=True); os.close(1); time.sleep(60)")
    async with world.open(tree="supervisor") as pool:
        assert await world.list(pool) == {}
    assert world.told == ["MCP server 'raw': it closed its output: bye"]


async def test_silent_server_is_given_up(world):
    world.add(extra="time.sleep(60)")
    async with world.open(initialise_s=0.4) as pool:
        assert await world.list(pool) == {}
    assert world.told == ["MCP server 'raw': it did not answer within 0.4 s"]


async def test_missing_program_is_told(world):
    world.add()
    world.servers[0] = type(world.servers[0])("raw", "no-such-program")
    async with world.open() as pool:
        assert await world.list(pool) == {}
    assert world.told == ["MCP server 'raw': its command 'no-such-program' is not found in PATH"]


CRASHING = """
def call(message):
    log = os.path.join(os.path.dirname(__file__), "calls")
    with open(log, "a") as file:
        file.write("x")
    if os.path.getsize(log) <= CRASHES:
        os._exit(7)
    say(message, "well")
"""


async def test_call_in_flight_is_not_repeated(world):
    world.add(extra=f"CRASHES = 1\n{CRASHING}")
    clock = FakeClock(auto=True)
    async with world.open(clock) as pool:
        tool = (await world.list(pool))["mcp__raw__hi"]
        first = text_of(await call(tool, world.root))
        assert (world.root / "calls").read_text() == "x"
        second = text_of(await call(tool, world.root))
    assert first == "MCP tool 'hi' failed: server 'raw': it exited with status 7"
    assert (second, clock.slept) == ("well", [1.0])


async def test_reconnects_back_off_and_end(world):
    begins = world.root / "begins"
    world.add(
        extra=f"""
        with open({str(begins)!r}, "a") as file:
            file.write("x")
        if os.path.getsize({str(begins)!r}) > 1:
            sys.exit("gone for good")
        def call(message):
            os._exit(1)
        """
    )
    clock = FakeClock(auto=True)
    async with world.open(clock) as pool:
        tool = (await world.list(pool))["mcp__raw__hi"]
        await call(tool, world.root)
        second = text_of(await call(tool, world.root))
        third = text_of(await call(tool, world.root))
        assert (clock.slept, begins.read_text()) == ([1.0, 2.0, 4.0], "xxxx")
        await clock.sleep(60)
        await call(tool, world.root)
    reason = "gave up after 3 attempts to reconnect: it exited with status 1: gone for good"
    assert second == third == f"MCP tool 'hi' failed: server 'raw': {reason}"
    assert begins.read_text() == "xxxxx"


async def test_switched_off_reconnect_is_obeyed(world):
    world.add(auto_reconnect=False, extra=f"CRASHES = 9\n{CRASHING}")
    async with world.open(FakeClock(auto=True)) as pool:
        tool = (await world.list(pool))["mcp__raw__hi"]
        await call(tool, world.root)
        text = text_of(await call(tool, world.root))
    assert "not connected, and autoReconnect is off: it exited with status 7" in text


async def test_complaints_are_taken_and_cut(world):
    flood = "for _ in range(200): sys.stderr.write('y' * 100_000)"
    world.add(extra=f"{flood}\ndef call(message):\n    os._exit(1)")
    async with world.open() as pool:
        text = text_of(await world.call(pool))
    assert text == "MCP tool 'hi' failed: server 'raw': it exited with status 1: " + "y" * 300


async def test_cancel_while_connecting_is_quick(world):
    world.add(extra="time.sleep(60)")
    async with world.open() as pool:
        task = asyncio.ensure_future(world.list(pool))
        await asyncio.sleep(0.2)
        begun = asyncio.get_running_loop().time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - begun < 0.5


OWNER = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.flows.mcp_world import World, text_of

async def main():
    world = World(Path({place!r}))
    world.add(extra="def call(message):\\n    say(message, str(os.getpid()))")
    async with world.open(tree={tree!r}) as pool:
        print(text_of(await world.call(pool)), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_killed_owner_leaves_no_server(world):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    code = textwrap.dedent(OWNER).format(root=root, place=str(world.root), tree="supervisor")
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(await asyncio.to_thread(owner.stdout.readline))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert await wait_gone(pid)


async def test_pool_without_servers_is_free():
    async with ServerPool((), None, FakeClock(), print) as pool:  # type: ignore[arg-type]
        assert await pool.list_tools(()) == {}

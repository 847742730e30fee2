"""Servers inside a boundary have the memory of a command, and say what ended them."""

from dataclasses import replace
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed
from retinue.engine.clock import SystemClock
from retinue.features.mcp.connection import McpOpener, ServerContext
from retinue.features.mcp.pool import ServerPool
from retinue.features.sandbox import Boundaries
from retinue.sandbox.probe import Machine, Probe
from retinue.settings.subagents import Sandbox
from tests.flows import mcp_world
from tests.flows.sandbox_world import need_status
from tests.flows.test_lsp_attacks import Kept, build

HOG = """
def {name}(message):
    held = [bytes(range(256)) * 4096 * 8 for _ in range(50)]
    time.sleep(20)
"""


@pytest.fixture
def boundaries(home: Path):
    need_status("bwrap")
    machine = Machine(Probe(backends=("bwrap",)))
    yield Boundaries(Sandbox(memory_mb=200), home=home, agent_dir=home / "a", find_machine=lambda: machine)
    machine.close()


async def test_large_language_server_is_ended(tmp_path, boundaries):
    world = build(tmp_path, boundaries, "import time\ndef note(text):\n    pass\n" + HOG.format(name="ask"))
    async with world.open():
        is_error, text, _ = await world.define(confinement=Kept(readonly=True))
    assert (is_error, "more than 200.0MB of memory" in text) == (True, True), text


async def test_large_mcp_server_is_ended(tmp_path, boundaries):
    boundary = boundaries.surround_place(tmp_path, readonly=True)
    world = mcp_world.World(tmp_path)
    server = world.add(extra="import time" + HOG.format(name="call"))
    around = ServerContext(tmp_path, world.environment, mcp_world.TREES, "1", world.told.append)
    confined = McpOpener(replace(around, confining=boundary))
    async with ServerPool(
        [server], McpOpener(around), SystemClock(), world.told.append, open_confined=confined
    ) as pool:
        pool.lease(["raw"], readonly=True)
        tools = await pool.list_tools(["raw"], readonly=True)
        try:
            said = mcp_world.text_of(await mcp_world.call(tools["mcp__raw__hi"], tmp_path))
        except ToolFailed as error:
            said = str(error)
    boundary.close()
    assert "more than 200.0MB of memory" in said, said

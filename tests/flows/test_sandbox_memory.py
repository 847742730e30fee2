import os
import shlex
import time
from pathlib import Path

import pytest

from retinue.core.tool import ToolContext
from retinue.sandbox.cgroup import find_bound, find_memory
from retinue.sandbox.confinement import open_sandbox
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.profile import Profile
from retinue.sandbox.status import Backend
from retinue.tools.process_tree import TreeProbe
from retinue.tools.process_usage import has_more_memory, read_used_memory
from retinue.tools.shell.bash import BashTool
from tests.flows.sandbox_world import BACKENDS, need_status

PYTHON = "/usr/bin/python3"
"""Not ours: that may lie where a sandbox hides everything, as in /tmp."""
HOG = (
    "import time; held = [bytes(range(256)) * 4096 * {} for _ in range({})]; print('held', flush=True); time.sleep({})"
)


def hog(megabytes: int, *, count: int = 1, wait_s: float = 20) -> str:
    """A command that fills so many megabytes in each of some processes."""
    code = HOG.format(8, megabytes // 8, wait_s)
    return f"for i in $(seq {count}); do {PYTHON} -c {shlex.quote(code)} & done; wait"


@pytest.mark.attack("B17")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 4])
async def test_large_command_is_ended_by_name(backend: Backend, tmp_path: Path, count: int) -> None:
    machine = Machine(Probe(backends=(backend,)))
    profile = Profile(os.path.realpath(tmp_path), max_memory=200 << 20)
    confinement = open_sandbox(need_status(backend), profile, machine.server)
    began = time.monotonic()
    command = hog(320 // count, count=count)
    result = await BashTool(TreeProbe()).call({"command": command}, ToolContext(tmp_path, confinement=confinement))
    assert "[Ended by the sandbox: more than 200.0MB of memory]" in result.content[0].text
    assert (time.monotonic() - began < 18, result.is_error) == (True, True)
    confinement.close()
    machine.close()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_shared_memory_counts_once(backend: Backend, tmp_path: Path) -> None:
    machine = Machine(Probe(backends=(backend,)))
    profile = Profile(os.path.realpath(tmp_path), max_memory=250 << 20)
    confinement = open_sandbox(need_status(backend), profile, machine.server)
    code = (
        "import os, time; held = bytes(150 << 20).replace(b'\\0', b'x'); [os.fork() for _ in range(3)]; time.sleep(0.7)"
    )
    command = f"{PYTHON} -c {shlex.quote(code)}; echo whole"
    result = await BashTool(TreeProbe()).call({"command": command}, ToolContext(tmp_path, confinement=confinement))
    assert result.content[0].text == "whole\n"
    confinement.close()
    machine.close()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_commands_die_first_of_all(backend: Backend, tmp_path: Path) -> None:
    machine = Machine(Probe(backends=(backend,)))
    confinement = open_sandbox(need_status(backend), Profile(os.path.realpath(tmp_path)), machine.server)
    command = "cat /proc/self/oom_score_adj; env | grep RETINUE_"
    result = await BashTool(TreeProbe()).call({"command": command}, ToolContext(tmp_path, confinement=confinement))
    assert result.content[0].text.split()[0] == "500" and "RETINUE_" not in result.content[0].text
    confinement.close()
    machine.close()


def test_own_memory_is_counted() -> None:
    held = bytearray(b"x") * (64 << 20)
    assert has_more_memory(os.getpid(), "plain", 64 << 20) and len(held) == 64 << 20
    assert not has_more_memory(os.getpid(), "plain", 1 << 40)
    assert 64 << 20 < read_used_memory() < find_memory() + (1 << 40)


def test_bound_is_a_share() -> None:
    assert (find_bound(5), 0 < find_bound() < find_memory()) == (5, True)

"""Attacks on searches: a folder that becomes a link to what is hidden, while ripgrep walks by names."""

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed, ToolRetry
from retinue.core.tool import ToolContext
from retinue.features.sandbox import Boundaries
from retinue.sandbox.probe import Machine, Probe
from retinue.settings.subagents import Sandbox
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.sandbox_world import BACKENDS, need_status

NONE = "none"
"""No sandbox at all: a search has to look twice."""
SECRET = "the key of the house"
SWAPPER = """
import os, sys
real, kept, target = sys.argv[1:]
while True:
    os.rename(real, kept); os.symlink(target, real); os.unlink(real); os.rename(kept, real)
"""


class Ground:
    """A workspace in which a folder is swapped all the time, and a home with something to hide."""

    def __init__(self, root: Path, backend: str) -> None:
        self.work, self.hidden = root / "w", root / "h" / ".ssh"
        (self.work / "top" / "dir").mkdir(parents=True)
        self.hidden.mkdir(parents=True)
        (self.work / "top" / "dir" / "id").write_text("my key\n")
        for number in range(200):
            (self.work / "top" / f"a{number}").write_text("x\n")
        (self.hidden / "id").write_text(SECRET)
        (self.hidden / "house").write_text("")
        self.machine = Machine(Probe(backends=() if backend == NONE else (backend,)))
        boundaries = Boundaries(Sandbox(), home=root / "h", agent_dir=root / "a", find_machine=lambda: self.machine)
        self.confined = boundaries.surround_place(self.work, readonly=False)
        self.context = ToolContext(
            self.work, confinement=self.confined, find_territory=lambda: self.confined.find_territory()
        )
        self.tools = build_tools(ToolOptions())

    @contextmanager
    def swap(self):
        folder = self.work / "top"
        argv = [sys.executable, "-c", SWAPPER, str(folder / "dir"), str(folder / "kept"), str(self.hidden)]
        with subprocess.Popen(argv) as swapper:
            try:
                yield
            finally:
                swapper.kill()
                self.confined.close()
                self.machine.close()


def need(backend):
    if backend != NONE:
        need_status(backend)


@pytest.mark.sample(7)
@pytest.mark.attack("C4", "C7", "SEC-11")
@pytest.mark.parametrize("path", ["top/dir", "top"])
@pytest.mark.parametrize("backend", [*BACKENDS, NONE])
@pytest.mark.parametrize("seconds", [1.5, pytest.param(10, marks=pytest.mark.slow)])
async def test_searches_find_nothing_hidden(tmp_path, backend, path, seconds, measure):
    need(backend)
    ground, leaks, tried = Ground(tmp_path, backend), 0, 0
    with ground.swap():
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for tool, arguments in (("grep", {"pattern": "key"}), ("find", {"pattern": "**"}), ("ls", {})):
                tried += 1
                try:
                    result = await ground.tools[tool].call({**arguments, "path": path}, ground.context)
                except (ToolFailed, ToolRetry):
                    continue
                leaks += SECRET in result.content[0].text or "house" in result.content[0].text
    measure("SEC-11", f"searches, {backend}, {path}, {seconds}", escapes=leaks, searches=tried)
    assert (leaks, tried >= 3) == (0, True)


@pytest.mark.parametrize("backend", [*BACKENDS, NONE])
async def test_confined_search_finds_all_else(tmp_path, backend):
    need(backend)
    ground = Ground(tmp_path, backend)
    (tmp_path / "h" / "note").write_text("a key\n")
    found = []
    for path in ("top/dir/id", "top", str(tmp_path / "h"), str(tmp_path / "h" / "note")):
        result = await ground.tools["grep"].call({"pattern": "key", "path": path}, ground.context)
        found.append(result.content[0].text)
    ground.confined.close()
    ground.machine.close()
    assert found == ["id:1: my key", "dir/id:1: my key", "note:1: a key", "note:1: a key"]

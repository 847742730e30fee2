"""What a boundary costs a command: `bash -c true` through the tool, confined and not, interleaved."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from retinue.core.launch import ConfinementFactory
from retinue.core.tool import ToolContext
from retinue.sandbox.confinement import open_sandbox
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.profile import SandboxSettings, build_readonly, build_writing
from retinue.sandbox.status import Backend
from retinue.tools.process_tree import TreeProbe
from retinue.tools.shell.bash import BashTool

ROUNDS = 200
BARS = {"read-only, bwrap": (10.0, 25.0)}


def measure() -> Iterator[Figure]:
    """Each variant over the bare one: the difference of medians, and of the times that one call in twenty exceeds."""
    with tempfile.TemporaryDirectory(prefix="retinue-bench-") as folder:
        times = asyncio.run(take_times(Path(folder)))
    bare = times.pop("bare")
    for name, took in times.items():
        half, most = BARS.get(name, (None, None))
        note = f"{middle(took):.1f} ms; bare bash: {middle(bare):.1f} ms; {ROUNDS} interleaved runs"
        yield Figure(f"a command in the sandbox, p50 over bare ({name})", middle(took) - middle(bare), "ms", half, note)
        note = f"{late(took):.1f} ms; bare bash: {late(bare):.1f} ms"
        yield Figure(f"a command in the sandbox, p95 over bare ({name})", late(took) - late(bare), "ms", most, note)


async def take_times(folder: Path) -> dict[str, list[float]]:
    """Milliseconds of each call, by variant."""
    wishes = SandboxSettings(home=os.environ.get("HOME", ""))
    tool = BashTool(TreeProbe(kind="plain"))
    machines = [Machine(Probe(backends=(backend,))) for backend in list_backends()]
    boundaries: dict[str, ConfinementFactory | None] = {"bare": None}
    opened = []
    for machine in machines:
        for build in (build_readonly, build_writing):
            made = open_sandbox(machine.look(), build(folder, wishes), machine.server)
            opened.append(made)
            boundaries[made.summary.removesuffix(" (partial)").replace(", network", "")] = made
    times: dict[str, list[float]] = {name: [] for name in boundaries}
    for index in range(ROUNDS + 5):
        for name, confinement in boundaries.items():
            context = ToolContext(folder, confinement=confinement)
            begun_s = time.perf_counter()
            result = await tool.call({"command": "true"}, context)
            took_ms = (time.perf_counter() - begun_s) * 1000
            assert not result.is_error, result
            if index >= 5:
                times[name].append(took_ms)
    for made in opened:
        made.close()
    for machine in machines:
        machine.close()
    return times


def list_backends() -> list[Backend]:
    """Those that work here."""
    found: list[Backend] = []
    for backend in ("bwrap", "landlock"):
        machine = Machine(Probe(backends=(backend,)))
        if machine.look().is_usable:
            found.append(backend)
        machine.close()
    return found


def middle(values: list[float]) -> float:
    return statistics.median(values)


def late(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[18]

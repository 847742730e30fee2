import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.sandbox import ROUNDS, late, middle, take_times
from retinue.sandbox.status import Backend
from tests.flows.sandbox_world import need_status
from tests.needs import explain_lack

TRIES = 3


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.attack("SEC-3")
async def test_boundary_costs_few_milliseconds(tmp_path: Path, measure: Callable[..., None]) -> None:
    both: tuple[Backend, Backend] = ("bwrap", "landlock")
    kinds = [kind for kind in both if not explain_lack(kind)]
    for kind in kinds:
        need_status(kind)
    # Others work on this machine too: the best of a few tries is what the boundary itself costs.
    tries: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(TRIES):
        times = await take_times(Path(os.path.realpath(tmp_path)))
        bare = times["bare"]
        for kind, found in tries.items():
            took = times[f"read-only, {kind}"]
            found.append((middle(took) - middle(bare), late(took) - late(bare)))
        if all(found[-1][0] <= 10 and found[-1][1] <= 25 for found in tries.values()):
            break
    for kind, found in tries.items():
        p50_ms, p95_ms = min(found)
        measure("SEC-3", kind, p50_ms=p50_ms, p95_ms=p95_ms, runs=ROUNDS)
        assert p50_ms < 50

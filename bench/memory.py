"""Resident memory of one run in all, and of each further live run."""

import sys
from collections.abc import Iterator

from bench.figure import Figure
from bench.mock import script_tool_turns, serve, write_sample
from bench.workplace import open_workplace

FURTHER = 100


def measure() -> Iterator[Figure]:
    """The peak while runs are in the middle of their work, with one and with many."""
    with open_workplace() as place, serve(place.folder, script_tool_turns(write_sample(place.project))) as mock:
        place.use(mock)
        cost = {}
        for number in (1, 1 + FURTHER):
            command = [sys.executable, "-m", "bench.ours", "--conversations", str(number), "--warm", "1"]
            cost[number] = place.measure(*command, "--sample-memory")["memory_mb"]
    one, many = cost[1], cost[1 + FURTHER]
    note = f"{one:.1f} MB with one, {many:.1f} MB with {1 + FURTHER}, peaks"
    yield Figure("memory per further live run", (many - one) / FURTHER, "MB", 0.2, note)
    yield Figure("memory of one run in all", one, "MB", 75)

import sys

import pytest

from bench.fleet import ours, serve_fleet, write_settings
from bench.mock import TOOL_TURNS
from bench.workplace import Workplace, open_workplace

SLACK = 4
"""Times are figures of the bench; here they only must not be of another order, also on a busy machine."""


def play(place: Workplace, children: int) -> int:
    """How many model turns a parent with so many children takes."""
    with serve_fleet(place, children):
        turns: int = place.measure(*ours(children))["turns"]
        return turns


def test_hundred_children_of_one_reply_finish() -> None:
    with open_workplace() as place:
        write_settings(place)
        assert play(place, 100) == 100 * (TOOL_TURNS + 1) + 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_thousand_children_of_one_reply_finish() -> None:
    with open_workplace() as place:
        write_settings(place)
        assert play(place, 1000) == 1000 * (TOOL_TURNS + 1) + 3


@pytest.mark.timeout(120)
def test_ten_thousand_queued_runs_are_cheap() -> None:
    with open_workplace() as place:
        (place.agent_dir / "subagents.json").write_text('{"maxConcurrent": 1, "maxSpawnsPerTree": 100000}')
        with serve_fleet(place, 1):
            cost = place.measure(sys.executable, "-m", "bench.fleet_ours", "--queue", "10000")
    assert cost["active"] == 0
    assert (cost["grown_mb"] <= 150, cost["cancel_s"] <= 2 * SLACK, cost["p95_ms"] <= SLACK) == (True, True, True), cost

"""CPU per model turn and work span, 100 conversations at once, against the bare client."""

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.mock import TOOL_TURNS, Mock, compute_ideal_s, script_tool_turns, serve, write_sample
from bench.opening import capture_opening
from bench.workplace import ROOT, Workplace, open_workplace

CONVERSATIONS, ROUNDS = 100, 5
TURNS = TOOL_TURNS + 1
BARE = str(ROOT / "bench" / "bare.py")
Costs = dict[str, list[dict[str, Any]]]


def measure() -> Iterator[Figure]:
    """Interleaved rounds of all variants; medians of the rounds' ratios."""
    with open_workplace() as place:
        script = script_tool_turns(write_sample(place.project))
        ideal_s = compute_ideal_s(script)
        opening = capture_opening(place)
        with serve(place.folder, script) as mock:
            place.use(mock)
            costs = play_rounds(place, mock, opening)
    for ours, bare, bar in (("unwatched", "stream", 1.0), ("watched", "stream", None), ("unwatched", "orjson", None)):
        yield compare_cpu(costs, ours, bare, bar)
    yield from compare_spans(costs, ideal_s)


def play_rounds(place: Workplace, mock: Mock, opening: Path) -> Costs:
    """What each variant costs, round by round."""
    size = ["--conversations", str(CONVERSATIONS), "--warm", "2"]
    bare = [sys.executable, BARE, "--url", mock.chat_url, "--opening", str(opening), *size]
    ours = [sys.executable, "-m", "bench.ours", *size]
    variants = {
        "bare stream": bare,
        "bare orjson": [*bare, "--codec", "orjson"],
        "ours unwatched": ours,
        "ours watched": [*ours, "--watched"],
    }
    costs: Costs = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, command in variants.items():
            cost = place.measure(*command)
            if cost["turns"] != CONVERSATIONS * TURNS:
                raise RuntimeError(f"{name} played {cost['turns']} turns instead of {CONVERSATIONS * TURNS}")
            costs[name].append(cost)
    return costs


def compare(costs: Costs, ours: str, bare: str, key: str) -> tuple[float, float, float]:
    """The median of our cost as a multiple of the bare client's in the same round, and both medians."""
    mine = [cost[key] for cost in costs[f"ours {ours}"]]
    theirs = [cost[key] for cost in costs[f"bare {bare}"]]
    # Round by round, because a machine that is busy for a while is busy for both.
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    return statistics.median(ratios), statistics.median(mine), statistics.median(theirs)


def compare_cpu(costs: Costs, ours: str, bare: str, bar: float | None) -> Figure:
    """Our CPU per turn as a multiple of the bare client's."""
    ratio, mine, theirs = compare(costs, ours, bare, "cpu_s")
    per_turn = 1000 / (CONVERSATIONS * TURNS)
    note = f"{mine * per_turn:.2f} ms, sessions written; bare client ({bare}): {theirs * per_turn:.2f} ms"
    return Figure(f"CPU per model turn, {ours} / bare {bare}", ratio, "×", bar, note)


def compare_spans(costs: Costs, ideal_s: float) -> Iterator[Figure]:
    """Our span over the ideal one, as a multiple of the bare client's."""
    for ours in ("unwatched", "watched"):
        ratio, mine, theirs = compare(costs, ours, "stream", "span_s")
        note = f"{mine / ideal_s:.2f} × the ideal {ideal_s * 1000:.0f} ms; bare client: {theirs / ideal_s:.2f} ×"
        yield Figure(f"work span / ideal, {ours} / bare stream", ratio, "×", 1.2, note)

"""The fleet: one parent reply starts N subagents at once and joins them, against a bare client that does the same."""

import contextlib
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.mock import ANSWER, CHUNK_CHARS, CHUNK_MS, FIRST_TOKEN_MS, TOOL_TURNS, Mock, compute_ideal_s, serve
from bench.mock import script_tool_turns as script_child
from bench.workplace import Workplace, open_workplace

SIZES, ROUNDS = (1, 10, 100), 5
LIVE, QUEUED = 1_000, 10_000
SAMPLE = "".join(f"line {number}: some text that stands for code\n" for number in range(1, 4))
Json = dict[str, Any]
Costs = dict[tuple[str, int], list[Json]]


def measure() -> Iterator[Figure]:
    """All figures of the fleet."""
    with open_workplace() as place:
        write_settings(place)
        openings = capture_openings(place)
        costs = play_rounds(place, openings)
        ideal_s = compute_ideal_s(script_child(place.project / "sample.txt")) + compute_ideal_s(script_parent(1)[::2])
        yield from compare_sizes(costs, ideal_s)
        yield from compare_memory(costs)
        yield from compare_starts(place, openings)
        yield measure_request(openings)
        yield from measure_many(place)
        yield from measure_queue(place)


def write_settings(place: Workplace) -> None:
    """Nobody waits, and nobody is refused."""
    settings = {"maxConcurrent": 1024, "maxSpawnsPerTree": 100_000}
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings), encoding="utf-8")
    (place.project / "sample.txt").write_text(SAMPLE, encoding="utf-8")


def script_parent(children: int) -> list[Json]:
    """Start them all in one reply, ask for all results in the next, then answer. Calls come whole, however many."""
    spawn = [
        {"name": "Agent", "arguments": {"prompt": f"task {n}", "description": f"task {n}"}} for n in range(children)
    ]
    names = [f"child{number:012d}" for number in range(children)]
    join = [{"name": "get_subagent_result", "arguments": {"agent_id": name, "wait": True}} for name in names]
    answer = {"text": ANSWER, "chunk_ms": CHUNK_MS, "chunk_chars": CHUNK_CHARS}
    return [{"delay_ms": FIRST_TOKEN_MS, **reply} for reply in ({"calls": spawn}, {"calls": join}, answer)]


@contextlib.contextmanager
def serve_fleet(place: Workplace, children: int, *, log: bool = False) -> Iterator[Mock]:
    """The server with the script for so many children."""
    parent = [{**reply, "match": {"last_user": "^begin$"}} for reply in script_parent(children)]
    with serve(place.folder, [*parent, *script_child(place.project / "sample.txt")], log=log) as mock:
        place.use(mock)
        yield mock


def capture_openings(place: Workplace) -> tuple[Path, Path, int]:
    """What parent and child send first, for the bare client; and the bytes of a child's last request."""
    with serve_fleet(place, 1, log=True) as mock:
        place.measure(*ours(1))
        bodies = [entry["body"] for entry in mock.read_log() if entry["method"] == "POST"]
    found: list[Path] = []
    for task in ("begin", "task 0"):
        body = next(body for body in bodies if find_task(body) == task)
        system = [message for message in body["messages"] if message["role"] in ("system", "developer")]
        opening = {"model": body["model"], "messages": system, "tools": body.get("tools", [])}
        found.append(place.folder / f"opening-{len(found)}.json")
        found[-1].write_text(json.dumps(opening), encoding="utf-8")
    last = [body for body in bodies if find_task(body) == "task 0"][-1]
    return found[0], found[1], len(json.dumps(last, ensure_ascii=False, separators=(",", ":")).encode())


def find_task(body: Json) -> str:
    """The last thing the user said, without the tag that names the agent."""
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    content = said[-1] if said else ""
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return text.partition("\n<active_agent ")[0]


def ours(children: int) -> list[str]:
    """The command of our side."""
    return [sys.executable, "-m", "bench.fleet_ours", "--children", str(children)]


def bare(mock: Mock, openings: tuple[Path, Path, int]) -> list[str]:
    """The command of the bare client."""
    paths = ["--main", str(openings[0]), "--child", str(openings[1])]
    return [sys.executable, "-m", "bench.fleet_bare", "--url", mock.chat_url, *paths]


def play_rounds(place: Workplace, openings: tuple[Path, Path, int]) -> Costs:
    """What each side costs for each number of children, round by round."""
    costs: Costs = {(side, size): [] for side in ("bare", "ours") for size in SIZES}
    for size in SIZES:
        with serve_fleet(place, size) as mock:
            for _ in range(ROUNDS):
                for side, command in (("bare", bare(mock, openings)), ("ours", ours(size))):
                    cost = place.measure(*command)
                    expected = size * (TOOL_TURNS + 1) + 3
                    if cost["turns"] != expected:
                        raise RuntimeError(f"{side} played {cost['turns']} turns instead of {expected}")
                    costs[side, size].append(cost)
    return costs


def compare(costs: Costs, size: int, key: str) -> tuple[float, float, float]:
    """The median of our cost as a multiple of the bare client's in the same round, and both medians."""
    mine, theirs = ([cost[key] for cost in costs[side, size]] for side in ("ours", "bare"))
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    return statistics.median(ratios), statistics.median(mine), statistics.median(theirs)


def compare_sizes(costs: Costs, ideal_s: float) -> Iterator[Figure]:
    """Span and CPU for each number of children; those of the largest have bars."""
    for size in SIZES:
        ratio, mine, theirs = compare(costs, size, "span_s")
        note = f"{mine / ideal_s:.2f} × the ideal {ideal_s * 1000:.0f} ms; bare client: {theirs / ideal_s:.2f} ×"
        yield Figure(f"fleet: span of {size} subagents / bare", ratio, "×", 1.25 if size == SIZES[-1] else None, note)
    for size in SIZES:
        ratio, mine, theirs = compare(costs, size, "cpu_s")
        turn_ms = 1000 / (size * (TOOL_TURNS + 1) + 3)
        note = f"{mine * turn_ms:.2f} ms; bare client: {theirs * turn_ms:.2f} ms"
        bar = 2.3 if size == SIZES[-1] else None
        yield Figure(f"fleet: CPU per model turn, {size} subagents / bare", ratio, "×", bar, note)


def compare_memory(costs: Costs) -> Iterator[Figure]:
    """Peaks of one and of many."""
    one, many = (statistics.median(cost["memory_mb"] for cost in costs["ours", size]) for size in (1, SIZES[-1]))
    note = f"{one:.1f} MB with one, {many:.1f} MB with {SIZES[-1]}, peaks"
    yield Figure("fleet: memory per further live subagent", (many - one) / (SIZES[-1] - 1), "MB", 0.2, note)
    yield Figure("fleet: memory with one subagent", one, "MB", 75)


def compare_starts(place: Workplace, openings: tuple[Path, Path, int]) -> Iterator[Figure]:
    """From the end of the reply that starts a hundred until the last of them has asked for the first time."""
    size = SIZES[-1]
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    with serve_fleet(place, size, log=True) as mock:
        for _ in range(ROUNDS):
            for side, command in (("bare", bare(mock, openings)), ("ours", ours(size))):
                mock.log.write_text("")
                place.measure(*command)
                times[side].append(find_start_ms(mock.read_log(), size))
    ratios = [mine / theirs for mine, theirs in zip(times["ours"], times["bare"], strict=True)]
    note = f"{statistics.median(times['ours']):.0f} ms; bare client: {statistics.median(times['bare']):.0f} ms"
    yield Figure(
        f"fleet: spawn reply to the last of {size} first requests / bare", statistics.median(ratios), "×", 2, note
    )


def find_start_ms(log: list[Json], size: int) -> float:
    """By when requests arrived at the server."""
    posts = [entry for entry in log if entry["method"] == "POST"]
    begun_ns = next(entry["arrivedNs"] for entry in posts if find_task(entry["body"]) == "begin")
    firsts = [
        entry["arrivedNs"]
        for entry in posts
        if find_task(entry["body"]).startswith("task")
        and not any(message["role"] == "assistant" for message in entry["body"]["messages"])
    ]
    if len(firsts) != size:
        raise RuntimeError(f"{len(firsts)} first requests instead of {size}")
    return float(max(firsts) - begun_ns) / 1e6 - FIRST_TOKEN_MS


def measure_request(openings: tuple[Path, Path, int]) -> Figure:
    """How much one child sends."""
    note = "the last of one child: prompt, tools, five turns; agent general-purpose"
    return Figure("fleet: bytes of one child request", openings[2] / 1000, "KB", 10.5, note)


def measure_many(place: Workplace) -> Iterator[Figure]:
    """A thousand at once."""
    with serve_fleet(place, LIVE):
        cost = place.measure(*ours(LIVE))
    note = f"span {cost['span_s']:.1f} s, peak {cost['memory_mb']:.0f} MB"
    yield Figure(f"fleet: of {LIVE} live subagents not finished", cost["unfinished"], "", 0, note)


def measure_queue(place: Workplace) -> Iterator[Figure]:
    """Ten thousand that wait."""
    (place.agent_dir / "subagents.json").write_text('{"maxConcurrent": 1, "maxSpawnsPerTree": 100000}')
    with serve_fleet(place, 1):
        cost = place.measure(sys.executable, "-m", "bench.fleet_ours", "--queue", str(QUEUED))
    if cost["active"]:
        raise RuntimeError(f"{cost['active']} runs are not stopped")
    yield Figure(f"fleet: memory of {QUEUED} queued", cost["grown_mb"], "MB", 150)
    yield Figure(f"fleet: stopping {QUEUED} queued", cost["cancel_s"], "s", 2)
    yield Figure("fleet: accepting one, 95th percentile", cost["p95_ms"], "ms", 1, f"while {QUEUED} are accepted")

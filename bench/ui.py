"""The terminal UI in a real terminal: how soon it shows, how it moves while fifty agents write, what rest costs."""

import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.longsession import LINES, write_session
from bench.mock import serve
from bench.workplace import ROOT, Workplace, open_workplace
from tests.terminal import FRAME, Terminal, open_terminal

PROGRAM = str(ROOT / ".venv" / "bin" / "retinue")
STARTS, AGENTS, DELTAS_PER_S, WATCHED_S, IDLE_S = 10, 50, 40, 8.0, 5.0
KEYS = "ЖЩЮЯЁЪЫЭЂЄЉЊЋЏѪѮѰѲѴҐҒҖҚҜҠҢҤҨҪҰҲҶҸҺӁӃӇӋ"
"""Characters that nothing else on the screen has."""
EDITOR = "╭"


def measure() -> Iterator[Figure]:
    """All figures of the UI."""
    with open_workplace() as place:
        yield measure_start(place)
        yield measure_idle(place)
        yield from measure_fleet(place)
        yield from measure_long(place)


def open_ui(place: Workplace, *arguments: str, core: int | None = None) -> Any:
    """The program in a terminal, on one core if wanted."""
    environment = {**place.environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    return open_terminal([*pinned, PROGRAM, *arguments], place.project, environment, columns=140, rows=45)


def measure_start(place: Workplace) -> Figure:
    """From the start of the program to the first frame that has the editor in it."""
    times, costs = [], []
    for _ in range(STARTS):
        with open_ui(place, "--model", "offline/rules") as terminal:
            times.append(terminal.wait_for(EDITOR) * 1000)
            costs.append(read_cpu_s(terminal) * 1000)
    note = f"median of {STARTS}; {statistics.median(costs):.0f} ms of them CPU"
    return Figure("ui: start to first paint", statistics.median(times), "ms", 600, note)


def measure_idle(place: Workplace) -> Figure:
    """CPU at rest, with nothing to show."""
    with open_ui(place, "--model", "offline/rules") as terminal:
        terminal.wait_for("offline/rules")
        terminal.read(1.5)
        before_s = read_cpu_s(terminal)
        terminal.read(IDLE_S)
        used = read_cpu_s(terminal) - before_s
    return Figure("ui: CPU at rest", 100 * used / IDLE_S, "%", 1, f"of one core, over {IDLE_S:.0f} s")


def read_cpu_s(terminal: Terminal) -> float:
    """What the program has used so far, user and system."""
    fields = Path(f"/proc/{terminal.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_fleet(place: Workplace) -> Iterator[Figure]:
    """Fifty agents that write, a person that types."""
    settings = {"maxConcurrent": 1024, "maxSpawnsPerTree": 100_000}
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings), encoding="utf-8")
    with serve(place.folder, script_fleet()) as mock:
        place.use(mock)
        core = max(os.sched_getaffinity(0))
        with open_ui(place, "--model", "mock/bench", core=core) as terminal:
            terminal.wait_for("mock/bench")
            terminal.type("begin\r")
            terminal.wait_for(" more", 20)
            terminal.read(1.5)
            frames, begun, cpu_s = terminal.output.count(FRAME), time.perf_counter(), read_cpu_s(terminal)
            echoes = list(type_keys(terminal))
            took = time.perf_counter() - begun
            frames = terminal.output.count(FRAME) - frames
            load = (read_cpu_s(terminal) - cpu_s) / took
    note = f"{frames / took:.1f} frames/s, {AGENTS} agents with {DELTAS_PER_S} pieces/s each, {load:.0%} of one core"
    yield Figure("ui: time between frames, 50 agents", 1000 * took / frames, "ms", 100, note)
    p95 = statistics.quantiles(echoes, n=20)[-1] * 1000
    note = f"95th percentile of {len(echoes)}; median {statistics.median(echoes) * 1000:.0f} ms"
    yield Figure("ui: key to echo, 50 agents", p95, "ms", 50, note)


def type_keys(terminal: Terminal) -> Iterator[float]:
    """Press keys at an even pace and see when each is on the screen."""
    pace_s = WATCHED_S / len(KEYS)
    for key in KEYS:
        begun = time.perf_counter()
        since = len(terminal.output)
        terminal.type(key)
        yield terminal.wait_for(key, since=since)
        terminal.read(max(0.0, pace_s - (time.perf_counter() - begun)))


def script_fleet() -> list[dict[str, Any]]:
    """One reply that starts all agents; each of them writes until long after the end of the measurement."""
    calls = [{"name": "Agent", "arguments": {"prompt": f"task {n}", "description": f"task {n}"}} for n in range(AGENTS)]
    words = "".join(f"word{n:05d} " for n in range(2 * 1000))
    writing = {"text": words, "chunk_ms": 1000 // DELTAS_PER_S, "chunk_chars": 10}
    main: list[dict[str, Any]] = [{"calls": calls}, {"text": "They work."}]
    return [*({**reply, "match": {"last_user": "^begin$"}} for reply in main), writing]


def measure_long(place: Workplace) -> Iterator[Figure]:
    """A session of 100,000 lines: from the start of the program until its end is on the screen; then page by page."""
    path = write_session(place.folder / "long.jsonl", place.project, LINES, 0)
    with open_ui(place, "--model", "offline/rules", "--session", str(path)) as terminal:
        opened_s = terminal.wait_for(f"Message {LINES - 1}.", 60)
        used_s = read_cpu_s(terminal)
        terminal.read(1)
        pages = []
        for _ in range(20):
            frames = terminal.output.count(FRAME)
            begun = time.perf_counter()
            terminal.type("\x1b[5~")
            while terminal.output.count(FRAME) == frames and time.perf_counter() - begun < 2:
                terminal.read(0.005)
            pages.append(time.perf_counter() - begun)
            terminal.read(0.05)
    note = f"the whole program, until the last message is on the screen; {used_s:.1f} s of it CPU"
    yield Figure("ui: open a session of 100,000 lines", opened_s, "s", 2, note)
    note = f"the longest of {len(pages)} pages; median {statistics.median(pages) * 1000:.0f} ms"
    yield Figure("ui: scroll it by a page", max(pages) * 1000, "ms", None, note)

"""What it takes to start: `--help` against a Python that does nothing, and the way to the first model request."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.mock import serve
from bench.opening import capture_opening
from bench.workplace import CLI, ROOT, Workplace, open_workplace

ROUNDS = 20
AGENTS = 1_000


def measure_help() -> Iterator[Figure]:
    """Medians of interleaved starts."""
    nothing, help_ = [sys.executable, "-c", "pass"], [*CLI, "--help"]
    script = [str(ROOT / ".venv" / "bin" / "retinue"), "--help"]
    with open_workplace() as place:
        times: dict[str, list[float]] = {"nothing": [], "help": [], "script": []}
        for _ in range(ROUNDS):
            for name, command in (("nothing", nothing), ("help", help_), ("script", script)):
                times[name].append(time_run(place, command))
    base = statistics.median(times["nothing"])
    for name, label in (("script", "retinue --help"), ("help", "python -m retinue --help")):
        took = statistics.median(times[name])
        note = f"{took * 1000:.0f} ms; python -c pass: {base * 1000:.0f} ms; medians of {ROUNDS}"
        yield Figure(f"{label} / python -c pass", took / base, "×", 5, note)


def time_run(place: Workplace, command: list[str]) -> float:
    """Wall time of a program that prints nothing we want."""
    begun_s = time.perf_counter()
    subprocess.run(command, cwd=place.project, env=place.environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun_s


def measure_agents() -> Iterator[Figure]:
    """Listing a thousand agent files, one in twenty of them broken, by the whole command."""
    with open_workplace() as place:
        fill_agents(place.agent_dir / "agents")
        command = [str(ROOT / ".venv" / "bin" / "retinue"), "agents", "--json"]
        times = [time_run(place, command) for _ in range(ROUNDS)]
        found = json.loads(place.run(*command))
    listed = sum(agent["source"] == "user" for agent in found["agents"])
    note = f"whole command, median of {ROUNDS}; {listed} listed, {len(found['diagnostics'])} diagnostics"
    yield Figure(f"retinue agents with {AGENTS} files", statistics.median(times) * 1000, "ms", 300, note)


def fill_agents(folder: Path) -> None:
    """Files of an ordinary size."""
    folder.mkdir()
    for number in range(AGENTS):
        tools = "[read, bash" if number % 20 == 7 else "read, grep"
        front = f"name: agent-{number}\ndescription: Agent {number}\ntools: {tools}\nreadonly: true\nmax_turns: 5"
        text = f"---\n{front}\n---\n\n" + "Do the work with care.\n" * 40
        (folder / f"agent-{number}.md").write_text(text, encoding="utf-8")


def measure_first_request() -> Iterator[Figure]:
    """From spawning the process until its first request is at the server."""
    with open_workplace() as place:
        opening = capture_opening(place)
        with serve(place.folder, [{"text": "hello"}], log=True) as mock:
            place.use(mock)
            bare = [sys.executable, str(ROOT / "bench" / "bare.py"), "--url", mock.chat_url, "--opening", str(opening)]
            ours = [str(ROOT / ".venv" / "bin" / "retinue"), "-p", "--model", "mock/bench", "hello"]
            variants = {"bare": bare, "ours": ours, "json": [*ours, "--mode", "json"]}
            times: dict[str, list[float]] = {name: [] for name in variants}
            for _ in range(ROUNDS):
                for name, command in variants.items():
                    mock.log.write_text("")
                    begun_ns = time.monotonic_ns()
                    place.run(*command)
                    times[name].append((mock.read_log()[0]["arrivedNs"] - begun_ns) / 1e6)
    base = statistics.median(times["bare"])
    for name, label in (("ours", "retinue -p"), ("json", "retinue -p --mode json")):
        took = statistics.median(times[name])
        note = f"{took:.0f} ms; bare client: {base:.0f} ms; medians of {ROUNDS}"
        yield Figure(f"start to first request, {label} / bare", took / base, "×", 1.5, note)

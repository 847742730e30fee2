"""retinue and its peers on the same work: one reply starts N subagents, each reads a file five times and answers.

Every program runs headless, in a home of its own, against the same mock server. Not part of a plain `make bench`: it
installs programs from npm into `.cache/peers`. Prints one row per program; what was not measured is said in its row.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.figure import Figure, describe_machine
from bench.mock import ANSWER, CHUNK_CHARS, CHUNK_MS, FIRST_TOKEN_MS, TOOL_TURNS, Script, compute_ideal_s, serve
from bench.peer_programs import BEGIN, PEERS, Json, NotMeasuredError, Peer
from bench.workplace import Workplace, open_workplace

SIZES, ROUNDS, TIMEOUT_S = (1, 10, 100), 3, 60
PACE = {"delay_ms": FIRST_TOKEN_MS, "chunk_ms": CHUNK_MS, "chunk_chars": CHUNK_CHARS}
CONTENT = "a line of text that stands for code"
SUBREAPER, SAMPLE_S = 36, 0.05
REPORTS = 40
"""So many replies are ready for a parent that hears of its subagents in several messages."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost."""

    start_ms: float
    span_s: float
    ideal_s: float
    cpu_s: float
    turns: int
    memory_mb: float


@dataclass(slots=True)
class Result:
    """All runs of one program."""

    version: str = ""
    costs: dict[tuple[int, bool], list[Cost]] = field(default_factory=dict)
    """By number of subagents, and whether memory was sampled."""
    problem: str = ""

    def pick(self, size: int, read: Callable[[Cost], float], *, sampled: bool = False) -> float | None:
        """The median of one number; None without runs."""
        found = self.costs.get((size, sampled))
        return statistics.median(map(read, found)) if found else None


def measure() -> Iterator[Figure]:
    """Measure every program and print the table; nothing here has a bar, so no figures."""
    if not sys.platform.startswith("linux"):
        raise RuntimeError("peers needs Linux: it reads memory from /proc")
    # Orphans of a program become children of this process: they count, and they are ended.
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    results = [(peer, Result()) for peer in PEERS]
    for peer, result in results:
        with keep_problem(result):
            peer.install()
            result.version = read_version(peer)
    load = os.getloadavg()[0]
    for number in range(-1, ROUNDS):  # the first round warms up
        for size in SIZES:
            for peer, result in results:
                for sampled in (False, True) if number >= 0 else (False,):
                    with keep_problem(result):
                        cost = play(peer, size, sampled=sampled)
                        if number >= 0:
                            result.costs.setdefault((size, sampled), []).append(cost)
        print(f"bench: peers: round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
    print(f"{describe_machine()}; medians of {ROUNDS} rounds; load before it: {load:.1f}\n")
    print(render(results))
    yield from ()


@contextlib.contextmanager
def keep_problem(result: Result) -> Iterator[None]:
    """Keep the first reason why a program has no figures."""
    try:
        yield
    except NotMeasuredError as error:
        result.problem = result.problem or str(error)


def read_version(peer: Peer) -> str:
    """What the program says its version is."""
    command, seen = [str(peer.path), "--version"], {**os.environ, "PATH": add_path(str(peer.path))}
    try:
        said = subprocess.check_output(command, env=seen, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMeasuredError(f"it does not start: {error}") from error
    return next((word for word in said.split() if word[0].isdigit()), "")


def add_path(program: str) -> str:
    """PATH for a program: pi asks for `node`, and the npm package `node` puts a new enough one beside it."""
    return f"{Path(program).parent}:{os.environ['PATH']}"


def write_script(peer: Peer, size: int, sample: Path) -> tuple[Script, float]:
    """The replies for parent and subagents, and the seconds that they take at least."""
    answer = {"text": ANSWER, **PACE}
    if peer.spawn is None:
        return [answer], compute_ideal_s([answer])
    spawn = {"calls": [peer.spawn(number) for number in range(size)], "delay_ms": FIRST_TOKEN_MS}
    parent = [spawn, answer] if peer.waits else [spawn, {"text": "I wait for them."}, *[answer] * REPORTS]
    read = {"name": peer.read[0], "arguments": {peer.read[1]: str(sample)}}
    child = [*[{"calls": [read], **PACE}] * TOOL_TURNS, answer]
    matched = [{**reply, "match": {"first_user": BEGIN}} for reply in parent]
    return [*matched, *child], compute_ideal_s([spawn, *child, answer])


def play(peer: Peer, size: int, *, sampled: bool) -> Cost:
    """Let a program do the work once."""
    if not peer.path.exists():
        raise NotMeasuredError("it is not installed")
    with open_workplace() as place:
        sample = place.project / "sample.txt"
        sample.write_text(f"{CONTENT}\n" * 3)
        script, ideal_s = write_script(peer, size, sample)
        with serve(place.folder, script, log=True) as mock:
            command, variables = peer.prepare(peer, place, mock)
            begun_ns, before_s = time.monotonic_ns(), read_cpu_s()
            memory_mb = run(place, command, variables, sampled=sampled)
            cpu_s = read_cpu_s() - before_s
            posts = [entry for entry in mock.read_log() if entry["method"] == "POST"]
    return judge(peer, size, posts, Cost(-begun_ns / 1e6, 0, ideal_s, cpu_s, len(posts), memory_mb))


def judge(peer: Peer, size: int, posts: list[Json], cost: Cost) -> Cost:
    """Complete the cost from what arrived at the server, or refuse it."""
    bodies = [json.dumps(entry["body"]) for entry in posts]
    parent = [entry["arrivedNs"] for entry, body in zip(posts, bodies, strict=True) if BEGIN in body]
    if not parent:
        raise NotMeasuredError("it sent no request")
    if peer.spawn is not None:
        turns, reads = len(posts) - len(parent), sum(CONTENT in body and BEGIN not in body for body in bodies)
        if len(parent) < 2 or (turns, reads) != (size * (TOOL_TURNS + 1), size * TOOL_TURNS):
            raise NotMeasuredError(f"{size} subagents made {turns} turns, {reads} after reading the file")
    # Until the answer of the parent has come: the server knows when it was asked for, and how long it takes.
    span_s = (parent[-1] - parent[0]) / 1e9 + compute_ideal_s([{"text": ANSWER, **PACE}])
    return replace(cost, start_ms=cost.start_ms + parent[0] / 1e6, span_s=span_s)


def run(place: Workplace, command: list[str], variables: dict[str, str], *, sampled: bool) -> float:
    """Run a program with all it starts to its end; returns the peak of their memory if asked to."""
    others, peak_mb = set(list_tree()), 0.0
    seen = {**place.environment, **variables, "PATH": add_path(command[0])}
    with open(place.folder / "output.txt", "wb") as output, open(os.devnull, "rb") as nothing:
        process = subprocess.Popen(command, cwd=place.project, env=seen, stdin=nothing, stdout=output, stderr=output)
        deadline_s = time.monotonic() + TIMEOUT_S
        while sampled and process.poll() is None and time.monotonic() < deadline_s:
            peak_mb = max(peak_mb, sum(read_pss_mb(pid) for pid in set(list_tree()) - others))
            time.sleep(SAMPLE_S)
        try:
            status = process.wait(max(0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise NotMeasuredError(f"not done after {TIMEOUT_S} s") from error
        finally:
            end_rest(process, others)
    if status != 0:
        said = (place.folder / "output.txt").read_text(errors="replace").strip().splitlines() or [""]
        raise NotMeasuredError(f"it ended with {status}: {said[-1][:100]}")
    return peak_mb


def end_rest(process: subprocess.Popen[bytes], others: set[int]) -> None:
    """End what is left of a program, by process id, and wait for it, so that its CPU time counts."""
    while rest := set(list_tree()) - others:
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        for pid in rest - {process.pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def list_tree() -> list[int]:
    """All processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], [os.getpid()]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def read_pss_mb(pid: int) -> float:
    """Memory of a process, its share of what it has in common with others."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0


def read_cpu_s() -> float:
    """User and system time of all that has ended below this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def render(results: list[tuple[Peer, Result]]) -> str:
    """One row per program."""
    most = SIZES[-1]
    spans = [f"span / ideal, N = {size}" for size in SIZES]
    columns = [
        "program",
        "start → first request (ms)",
        "CPU per model turn (ms)",
        f"CPU in all, N = {most} (s)",
        *spans,
    ]
    columns += ["memory, N = 1 (MB)", f"memory, N = {most} (MB)", "per further subagent (MB)"]
    rows = [columns, ["---", *["--:"] * (len(columns) - 1)]]
    for peer, result in results:
        start = result.pick(SIZES[0], lambda cost: cost.start_ms)
        label = peer.name.replace(peer.name.split(",")[0], f"{peer.name.split(',')[0]} {result.version}", 1)
        problem = result.problem or peer.gap
        if problem or start is None:
            shown = "–" if start is None else f"{start:.0f}"
            rows.append([label, shown, f"not measured: {problem}", *[""] * (len(columns) - 3)])
            continue
        rows.append([label, f"{start:.0f}", *render_costs(result)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def render_costs(result: Result) -> list[str]:
    """The cells of a program that did the work; CPU per turn leaves out what the start costs."""
    cpu = {size: result.pick(size, lambda cost: cost.cpu_s) or 0 for size in SIZES}
    turns = {size: result.pick(size, lambda cost: cost.turns) or 0 for size in SIZES}
    memory = {size: result.pick(size, lambda cost: cost.memory_mb, sampled=True) or 0 for size in SIZES}
    few, most = SIZES[0], SIZES[-1]
    per_turn_ms = (cpu[most] - cpu[few]) / (turns[most] - turns[few]) * 1000
    spans = [result.pick(size, lambda cost: cost.span_s / cost.ideal_s) or 0 for size in SIZES]
    each_mb = (memory[most] - memory[few]) / (most - few)
    shown = [f"{per_turn_ms:.2f}", f"{cpu[most]:.2f}", *(f"{span:.2f}" for span in spans)]
    return [*shown, f"{memory[few]:.0f}", f"{memory[most]:.0f}", f"{each_mb:.2f}"]

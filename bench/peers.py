"""retinue and its peers on the same work: one reply starts N subagents, each reads a file five times and answers.

Every program runs headless, in a home of its own, against the same mock server. Not part of a plain `make bench`: it
installs programs from npm into `.cache/peers`. Prints one row per program; what was not measured is said in its row.
"""

import contextlib
import ctypes
import itertools
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
from bench.mock import ANSWER, CHUNK_CHARS, CHUNK_MS, FIRST_TOKEN_MS, TOOL_TURNS, Mock, Script, compute_ideal_s, serve
from bench.peer_programs import BEGIN, PEERS, Json, NotMeasuredError, Peer, keep_runs
from bench.workplace import Workplace, open_workplace

SIZES, ROUNDS, TIMEOUT_S = (1, 10, 100), 3, 60
PACE = {"delay_ms": FIRST_TOKEN_MS, "chunk_ms": CHUNK_MS, "chunk_chars": CHUNK_CHARS}
CONTENT = "a line of text that stands for code"
SUBREAPER, SAMPLE_S = 36, 0.05
WORKER, READER = "general-purpose", "Explore"
RESULT, KILL_TURN = "the-result-of-the-subagent", 3
REPORTS = 40  # so many replies are ready for a parent that hears of its subagents in several messages


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
    costs: dict[tuple[int, bool], list[Cost]] = field(default_factory=dict)  # by subagents, and if memory was read
    problem: str = ""
    checks: list[str] = field(default_factory=list)

    def pick(self, size: int, read: Callable[[Cost], float], *, sampled: bool = False) -> float:
        """The median of one number."""
        return statistics.median(map(read, self.costs[size, sampled]))


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
    for number in range(ROUNDS + 1):  # the first one warms up
        for size, (peer, result), sampled in itertools.product(SIZES, results, (False, True)):
            with keep_problem(result):
                cost = None if result.problem else play(peer, size, sampled=sampled)
                if cost is not None and number > 0:
                    result.costs.setdefault((size, sampled), []).append(cost)
        print(f"bench: peers: round {number} of {ROUNDS}", file=sys.stderr, flush=True)
    for peer, result in results:
        with keep_problem(result):
            if peer.spawn is not None and not result.problem:
                result.checks = [check_write(peer, peer.spawn), check_kill(peer, peer.spawn)]
    print(f"{describe_machine()}; medians of {ROUNDS} rounds; load before it: {load:.1f}\n")
    print(render(results))
    yield from ()


@contextlib.contextmanager
def keep_problem(result: Result) -> Iterator[None]:
    """Keep the reason why a program has no figures; it is not run again."""
    try:
        yield
    except NotMeasuredError as error:
        result.problem = str(error)


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
    answer: Json = {"text": ANSWER, **PACE}
    if peer.spawn is None:
        return [answer], compute_ideal_s([answer])
    spawn: Json = {"calls": [peer.spawn(number, WORKER) for number in range(size)], "delay_ms": FIRST_TOKEN_MS}
    parent: Script = [spawn, answer] if peer.waits else [spawn, {"text": "I wait for them."}, *[answer] * REPORTS]
    read = {"name": peer.read[0], "arguments": {peer.read[1]: str(sample)}}
    child = [*[{"calls": [read], **PACE}] * TOOL_TURNS, answer]
    matched = [{**reply, "match": {"first_user": BEGIN}} for reply in parent]
    return [*matched, *child], compute_ideal_s([spawn, *child, answer])


def play(peer: Peer, size: int, *, sampled: bool) -> Cost:
    """Let a program do the work once."""
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


def check_write(peer: Peer, spawn: Callable[[int, str], Json]) -> str:
    """Whether a command of a read-only subagent creates a file in the project."""
    with open_workplace() as place:
        call = {"name": peer.shell, "arguments": {"command": "touch written.txt; echo done", "description": "write"}}
        with serve(place.folder, build_short(spawn(0, READER), [{"calls": [call]}]), log=True) as mock:
            run(place, *peer.prepare(peer, place, mock), sampled=False)
            answered = any(RESULT in body and BEGIN in body for body in read_bodies(mock))
        if not answered:
            raise NotMeasuredError("its read-only subagent did not answer")
        return "yes" if (place.project / "written.txt").exists() else "no"


def check_kill(peer: Peer, spawn: Callable[[int, str], Json]) -> str:
    """Whether the result of a subagent arrives after `kill -9` in the middle of its work and `--continue`."""
    with open_workplace() as place:
        sample = place.project / "sample.txt"
        sample.write_text(f"{CONTENT}\n")
        read = {"name": peer.read[0], "arguments": {peer.read[1]: str(sample)}}
        script = build_short(spawn(0, WORKER), [{"calls": [read], "delay_ms": 300}] * TOOL_TURNS)
        with serve(place.folder, script, log=True) as mock:
            command, variables = peer.prepare(peer, place, mock)
            keep_runs(peer, place)
            others, seen = list_tree(), {**place.environment, **variables, "PATH": add_path(command[0])}
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(
                command, cwd=place.project, env=seen, stdin=nothing, stdout=nothing, stderr=nothing
            )
            deadline_s = time.monotonic() + TIMEOUT_S
            while sum(BEGIN not in body for body in read_bodies(mock)) < KILL_TURN and time.monotonic() < deadline_s:
                time.sleep(SAMPLE_S)
            end_rest(process, others)
            before = len(read_bodies(mock))
            run(place, [*command[:-1], "--continue", "Go on."], variables, sampled=False)
            later = [body for body in read_bodies(mock)[before:] if BEGIN in body]
    if not later:
        raise NotMeasuredError("--continue did not open its session again")
    return "yes" if any(RESULT in body for body in later) else "no"


def build_short(spawn: Json, turns: Script) -> Script:
    """One subagent that makes some turns and answers; its parent says little, as often as it is asked."""
    parent: Script = [{"calls": [spawn]}, *[{"text": "I see."}] * REPORTS]
    return [*({**reply, "match": {"first_user": BEGIN}} for reply in parent), *turns, {"text": RESULT}]


def read_bodies(mock: Mock) -> list[str]:
    """What was posted so far."""
    return [json.dumps(entry["body"]) for entry in mock.read_log() if entry["method"] == "POST"]


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
    others, peak_mb = list_tree(), 0.0
    seen = {**place.environment, **variables, "PATH": add_path(command[0])}
    with open(place.folder / "output.txt", "wb") as output, open(os.devnull, "rb") as nothing:
        process = subprocess.Popen(command, cwd=place.project, env=seen, stdin=nothing, stdout=output, stderr=output)
        deadline_s = time.monotonic() + TIMEOUT_S
        while sampled and process.poll() is None and time.monotonic() < deadline_s:
            peak_mb = max(peak_mb, sum(read_pss_mb(pid) for pid in list_tree() - others))
            time.sleep(SAMPLE_S)
        try:
            status = process.wait(max(0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise NotMeasuredError(f"not done after {TIMEOUT_S} s") from error
        finally:
            end_rest(process, others)
    if status != 0:
        said = (place.folder / "output.txt").read_text(errors="replace").split()
        raise NotMeasuredError(f"it ended with {status}: {' '.join(said)[-100:]}")
    return peak_mb


def end_rest(process: subprocess.Popen[bytes], others: set[int]) -> None:
    """End what is left of a program, by process id, and wait for it, so that its CPU time counts."""
    while rest := list_tree() - others:
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if pid != process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        process.poll()
        time.sleep(0.01)


def list_tree(above: int = 0) -> set[int]:
    """All processes that descend from one, by default from this one."""
    found: set[int] = set()
    for path in Path(f"/proc/{above or os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in path.read_text().split()}
    return found.union(*(list_tree(pid) for pid in found))


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
    spans = [f"span / ideal, N = {size}" for size in SIZES]
    columns = ["program", "start → first request (ms)", "CPU per model turn (ms)", *spans]
    columns += [*(f"memory, N = {size} (MB)" for size in (SIZES[0], SIZES[-1])), "per further subagent (MB)"]
    columns += ["a read-only agent's command writes", "result arrives after `kill -9`"]
    rows = [columns, ["---", *["--:"] * (len(columns) - 1)]]
    for peer, result in results:
        program, *detail = peer.name.split(", ")
        start = f"{result.pick(SIZES[0], lambda cost: cost.start_ms):.0f}" if (SIZES[0], False) in result.costs else "–"
        problem = result.problem or peer.gap
        cells = (
            [f"not measured: {problem}", *[""] * (len(columns) - 3)]
            if problem
            else render_costs(result) + result.checks
        )
        rows.append([", ".join([f"{program} {result.version}".strip(), *detail]), start, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def render_costs(result: Result) -> list[str]:
    """The cells of a program that did the work; CPU per turn leaves out what the start costs."""
    few, most = SIZES[0], SIZES[-1]
    cpu_s, turns = (result.pick(most, read) - result.pick(few, read) for read in (lambda c: c.cpu_s, lambda c: c.turns))
    spans = [result.pick(size, lambda cost: cost.span_s / cost.ideal_s) for size in SIZES]
    low_mb, high_mb = (result.pick(size, lambda cost: cost.memory_mb, sampled=True) for size in (few, most))
    shown = [f"{cpu_s / turns * 1000:.2f}", *(f"{span:.2f}" for span in spans), f"{low_mb:.0f}", f"{high_mb:.0f}"]
    return [*shown, f"{(high_mb - low_mb) / (most - few):.2f}"]

"""Children in processes of their own: what one costs to start, and fifty of them at once; beside a real pi's."""

import json
import os
import resource
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.mock import serve
from bench.workplace import CLI, ROOT, Workplace, open_workplace

ROUNDS = 10
CROWD, PI_CROWD = 50, 5
ANSWER_MS = 12_000
"""So long the server keeps each child of a crowd waiting: all of them must be there at the same time."""


def measure() -> Iterator[Figure]:
    """All figures of children."""
    with open_workplace() as place:
        (place.project / "sample.txt").write_text("text\n", encoding="utf-8")
        yield from measure_start(place)
        yield from measure_crowd(place)


def measure_start(place: Workplace) -> Iterator[Figure]:
    """CPU of one child with everything around it, against the same work by hand."""
    with serve(place.folder, [{"text": "hello"}]) as mock:
        place.use(mock)
        alone_s = statistics.median(measure_alone(place) for _ in range(ROUNDS))
        ours = play(place, "process", ROUNDS)
        child_s = ours["cpu_s"] / ROUNDS
        note = f"CPU {child_s * 1000:.0f} ms each; retinue -p alone: {alone_s * 1000:.0f} ms; {ROUNDS} of each"
        yield Figure("children-start: a child process / retinue -p", child_s / alone_s, "×", 1.5, note)
        if find_pi():
            pi = play(place, "pi", ROUNDS)
            pi_s = pi["cpu_s"] / ROUNDS
            note = f"CPU {child_s * 1000:.0f} ms each; pi as the child: {pi_s * 1000:.0f} ms; the same work"
            yield Figure("children-start: our child / a pi child", child_s / pi_s, "×", None, note)


def measure_crowd(place: Workplace) -> Iterator[Figure]:
    """Many at once: none is lost, and what each of them takes."""
    with serve(place.folder, [{"text": "hello", "delay_ms": ANSWER_MS}]) as mock:
        place.use(mock)
        ours = play(place, "process", CROWD, watch_s=0.5)
        lost, each_mb = CROWD - ours["done"], ours["pss_kb"] / 1024 / CROWD
        note = f"all at once, in {ours['wall_s']:.1f} s, of which the model takes {ANSWER_MS / 1000:.0f}"
        yield Figure(f"children-lost: of {CROWD} at once", lost, "", 0, "; ".join([note, *ours["errors"]]))
        note = f"proportional (PSS), with what keeps it together, at the peak of {CROWD}"
        yield Figure("children-memory: of each", each_mb, "MB", 60, note)
        if find_pi():
            pi = play(place, "pi", PI_CROWD, watch_s=0.5)
            pi_mb = pi["pss_kb"] / 1024 / PI_CROWD
            note = f"PSS {each_mb:.0f} MB each; a pi child: {pi_mb:.0f} MB, {PI_CROWD} at once; the same work"
            yield Figure("children-memory: our child / a pi child", each_mb / pi_mb, "×", None, note)


def measure_alone(place: Workplace) -> float:
    """CPU of one headless run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    place.run(*CLI, "-p", "--mode", "json", "--no-session", "--model", "mock/bench", "task")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def play(place: Workplace, runner: str, children: int, watch_s: float = 0.0) -> dict[str, Any]:
    """A crew whose children are of one kind."""
    settings = {"runner": runner, "maxConcurrent": 1024, "maxSpawnsPerTree": 1000, "piCommand": find_pi() or "pi"}
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings), encoding="utf-8")
    program = [sys.executable, str(ROOT / "bench" / "children_crew.py")]
    path = os.pathsep.join(filter(None, (os.path.dirname(find_pi()), os.environ.get("PATH", ""))))
    quiet = [f"PATH={path}", "PI_OFFLINE=1", "PI_TELEMETRY=0"]
    command = ["/usr/bin/env", *quiet, *program, "--children", str(children), "--watch-s", str(watch_s)]
    return place.measure(*command)


def find_pi() -> str:
    """The installed pi, where RETINUE_PI_DIR names an npm project that has it; else nothing."""
    folder = os.environ.get("RETINUE_PI_DIR", "")
    path = Path(folder, "node_modules", ".bin", "pi")
    return str(path) if folder and path.is_file() else ""
